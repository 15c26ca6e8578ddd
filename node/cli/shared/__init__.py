"""What commands of several families use: options, properties, clients, errors, patterns."""
