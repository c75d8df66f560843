"""Compare and repair at size and under load, beside Londiste's compare of the same rows."""
