"""Tests of the report: charts as plain functions, its facts from tables, and the page in a real browser."""
