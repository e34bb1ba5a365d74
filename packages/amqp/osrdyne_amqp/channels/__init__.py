"""One `channel`, with `publishing` and `confirms`, `acknowledgements` of deliveries, and `pending_calls`."""
