"""What programs are given. `secrets` reads passwords, tokens and addresses that hold one; `model`, an extra that needs
pydantic, is the strict model of all tables of settings, with the one line about what is wrong.
"""
