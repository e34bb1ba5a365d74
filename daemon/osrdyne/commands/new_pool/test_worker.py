from worker import answer


def test_a_worker_answers_for_its_key() -> None:
    assert answer("LAX", "first") == "LAX answers first"
