"""Keys that caused a bug somewhere once, beside those that look like them: every part must serve each of them."""

KEYS = [
    "",
    "xchg",
    "leader",
    "a\nb",
    "a\rb",
    "ab",
    "42",
    "infra=42,timetable=24",
    "50%",
    "a/b",
    "é",
    "~x",
    "A",
    "a",
    "k" * 255,
    "l" * 120,
]
