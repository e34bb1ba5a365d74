from osrdyne_worker import Request, environment, run

key = environment().key  # load the data of this key here, once


def handle(request: Request) -> bytes:
    return f"{key} answers {request.body.decode()}".encode()


run(handle)
