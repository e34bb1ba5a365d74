"""Tests of the Ansible roles: on clean machines, and on a broker of their own."""
