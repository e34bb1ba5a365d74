"""A worker of the pool: what `osrdyne new` writes, too."""

from osrdyne_worker import Request, environment, run


def answer(key: str, question: str) -> str:
    return f"{key} answers {question}"


def handle(request: Request) -> bytes:
    return answer(key, request.body.decode()).encode()


if __name__ == "__main__":
    key = environment().key  # load the data of this key here, once
    run(handle)
