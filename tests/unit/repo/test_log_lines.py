"""A program that reads our logs finds a line by its message, which is constant, and the rest in fields."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import steps

#: Folders whose lines operators read.
PRODUCT = ("packages/", "daemon/", "infra/", "plugins/", "roles/")
#: What makes the logger of a module.
LOGGERS = {"logging.getLogger", "log_lines.logger"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def wrong_lines(source: str) -> list[int]:
    """The lines of a module that name its logger otherwise than `log`, or log a message that is not constant."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) in LOGGERS
        ):
            found += [node.lineno for target in node.targets if ast.unparse(target) != "log"]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            message = node.args[1:] if node.func.attr == "log" else node.args
            built = isinstance(message[0], ast.BinOp | ast.JoinedStr | ast.Call) if message else False
            if ast.unparse(node.func.value) == "log" and (len(message) != 1 or built):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize("folder", PRODUCT)
def test_each_module_calls_its_logger_log_and_has_constant_messages_with_fields(folder: str) -> None:
    files = [name for name in steps.tracked(".py") if name.startswith(folder)]

    assert files
    found = {name: lines for name in files if (lines := wrong_lines(Path(steps.ROOT, name).read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "logger = logging.getLogger(__name__)",
        "_log = log_lines.logger(__name__)",
        "log.warning('lost %s', key)",
        "log.error(f'lost {key}')",
        "log.info('lost ' + key)",
        "log.log(level, 'lost %s', key)",
    ],
)
def test_another_name_of_a_logger_and_a_value_in_a_message_are_found(line: str) -> None:
    assert wrong_lines(line) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "log = log_lines.logger(__name__)",
        "log.warning('lost', extra={'key': key})",
        "log.log(level, 'lost', extra={'key': key})",
    ],
)
def test_a_constant_message_with_fields_is_plain(line: str) -> None:
    assert wrong_lines(line) == []
