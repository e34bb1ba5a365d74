"""What programs are given: `secrets` reads passwords, tokens and addresses that hold one."""
