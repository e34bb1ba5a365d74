"""A real S3 server for tests: the Versity S3 Gateway, built from the Go module proxy, over a folder."""
