"""Messages by tables: the vocabulary of the tables, and the functions compiled from them."""
