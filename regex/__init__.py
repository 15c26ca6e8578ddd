"""Regular expressions in RE2's language that no client can make slow: subscriptions, filters of listings."""
