"""The bus on real peers."""
