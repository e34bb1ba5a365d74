"""What a release holds: packages that are installed alone, and what is made of them."""
