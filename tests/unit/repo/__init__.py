"""What the repository says of itself: README, pages, lock, Makefile and tools."""
