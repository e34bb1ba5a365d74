"""The change of a file: what else is in it stays, and what comes out is accepted where it is read."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from osrdyne_infra import configuration
from osrdyne_pipeline.recommendation.edit import change as edits
from osrdyne_pipeline.recommendation.edit.change import FileChange
from osrdyne_pipeline.recommendation.edit.wanted import NotChanged, WantedOverride, WantedSettings, recommended
from osrdyne_pipeline.recommendation.outcome import PolicyResult, Ratio, Recommendation, RecommendationEvidence, Setting
from osrdyne_pipeline.recommendation.warm import WarmWindow
from osrdyne_pool.settings import Delays, PoolSettings

ROOT = Path(__file__).parents[3]

STACK = """\
---
# A stack of a test.
config:
  osrdyne:broker: {management: 'http://127.0.0.1:15672', amqp: 'amqp://127.0.0.1:5672', admin: admin}  # near
  osrdyne:vhost: here
  osrdyne:instance: test
  osrdyne:pools:
    - name: other
      unbind_delay: PT10M
    # The one that is asked about.
    - name: core
      # A person's reason.
      unbind_delay: PT10M  # since May
      stop_delay: PT10M
      delivery_limit: 3
  # At the end.
  osrdyne:lose_messages_of: []
"""


def setting(key: str, unbind: float = 2640.0, warm: tuple[WarmWindow, ...] = ()) -> Setting:
    return Setting(key, unbind, 60.0, warm, 120, 100, 30, 40.0, 41.5)


def result(name: str, cold: int, hours: float) -> PolicyResult:
    return PolicyResult(name, name, 1000, cold, cold, hours, 0.5, 0.5, 10)


def recommendation(*overrides: Setting, **changes: Any) -> Recommendation:
    one = Ratio(0.5, 0.4, 0.6)
    results = (result("today", 800, 500.0), result("ours", 400, 499.0), result("cheaper", 790, 250.0))
    found = RecommendationEvidence("2013-11-06", "2013-12-31", 4, 8, 8, results, one, one, one, ())
    values: dict[str, Any] = {
        "pool": "core", "recommended": True, "reasons": (), "goal": "cold",
        "since": "2013-01-01", "until": "2013-12-31",
        "days": 365, "keys": 10, "requests": 1000, "shortened": False, "unbind_before": 600.0, "stop_before": 600.0,
        "unbind_delay": 840.0, "stop_delay": 60.0, "overrides": overrides, "classes": (), "fixed_curve": (),
        "our_curve": (), "evidence": found,
    }  # fmt: skip
    return Recommendation(**values | changes)


def pulumi(found: Recommendation, path: Path) -> FileChange:
    return edits.pulumi(recommended(found), path)


def ansible(found: Recommendation, path: Path) -> FileChange:
    return edits.ansible(recommended(found), path)


def write(folder: Path, text: str) -> Path:
    path = folder / "Pulumi.test.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def pool_of(text: str, number: int = 1) -> PoolSettings:
    """The pool as the infrastructure code reads it from a stack's file."""
    config = YAML(typ="safe").load(text)["config"]
    raw = {name: value if isinstance(value, str) else json.dumps(value) for name, value in config.items()}
    parsed = configuration.parse(raw | {"osrdyne:admin_password": "x"}, {"osrdyne:admin_password"})
    pools: tuple[PoolSettings, ...] = getattr(parsed, "pools", ())
    return pools[number]


def test_only_the_pools_lines_change_and_the_infrastructure_code_takes_the_result(tmp_path: Path) -> None:
    warm = (WarmWindow(("mon", "tue"), 360, 570), WarmWindow(("sun",), 0, 1440))
    change = pulumi(recommendation(setting("BOS", warm=warm), setting("LAX", 86_340)), write(tmp_path, STACK))
    assert change.before == STACK
    assert change.after == STACK.replace(
        "      unbind_delay: PT10M  # since May\n      stop_delay: PT10M\n",
        "      # recommended: before 600 + 600 s, replayed on 8 weeks not learnt from (2013-11-06 to 2013-12-31):\n"
        "      # recommended: cold starts 800 -> 400, worker-hours 500 -> 499\n"
        "      unbind_delay: PT14M\n"
        "      stop_delay: PT1M\n"
        "      overrides:\n"
        '        "BOS":  # recommended: 120 requests, cold 100 -> 30, hours 40 -> 42\n'
        "          unbind_delay: PT44M\n"
        "          stop_delay: PT1M\n"
        "          warm:\n"
        "            - mon,tue 06:00-09:30\n"
        "            - sun 00:00-24:00\n"
        '        "LAX":  # recommended: 120 requests, cold 100 -> 30, hours 40 -> 42\n'
        "          unbind_delay: PT23H59M\n"
        "          stop_delay: PT1M\n",
    )
    pool = pool_of(change.after)
    assert (pool.unbind_delay, pool.stop_delay, pool.delivery_limit) == (840.0, 60.0, 3)
    assert pool.overrides == {
        "BOS": Delays(2640.0, 60.0, ("mon,tue 06:00-09:30", "sun 00:00-24:00")),
        "LAX": Delays(86_340.0, 60.0),
    }


@pytest.mark.parametrize("change", [pulumi, ansible])
def test_spans_after_the_last_call_are_written_and_read_again(tmp_path: Path, change: Any) -> None:
    one = dataclasses.replace(setting("BOS", 60.0), prewarm=((3300.0, 3900.0), (7140.0, 7500.0)))
    if change is pulumi:
        found = change(recommendation(one), write(tmp_path, STACK))
        pool = pool_of(found.after)
    else:
        path = write(tmp_path, "osrdyne_pool:\n  name: core\n")
        found = change(recommendation(one), path)
        pool = PoolSettings.from_mapping(YAML(typ="safe").load(found.after)["osrdyne_pool"])
    assert "prewarm:\n" in found.after
    assert "- [3300, 3900]\n" in found.after
    assert pool.overrides == {"BOS": Delays(60.0, 60.0, prewarm=((3300.0, 3900.0), (7140.0, 7500.0)))}


def test_the_next_change_replaces_ours_and_leaves_what_a_person_wrote(tmp_path: Path) -> None:
    text = STACK.replace(
        "      delivery_limit: 3\n",
        "      delivery_limit: 3\n      overrides:\n"
        "        # Their contract.\n        vip:\n          unbind_delay: P1D\n",
    )
    path = write(tmp_path, text)
    pulumi(recommendation(setting("BOS"), setting("LAX")), path).write()
    second = pulumi(recommendation(setting("LAX", 600.0), unbind_delay=900.0), path)
    pool = pool_of(second.after)
    assert pool.unbind_delay == 900.0
    assert pool.overrides == {"vip": Delays(86_400.0, 60.0), "LAX": Delays(600.0, 60.0)}
    assert second.after.count("# recommended: before") == 1
    assert "        # Their contract.\n        vip:\n" in second.after
    second.write()
    assert pulumi(recommendation(setting("LAX", 600.0), unbind_delay=900.0), path).diff() == ""


@pytest.mark.parametrize(
    "key",
    [
        "",
        "no",
        "a b",
        "<<",
        "#x",
        "ключ",
        "\U0001f600",
        "it's",
        'a"b\\c',
        "tab\tend",
        "\x85\ufeff\u2028",
        "-",
        "k" * 255,
    ],
)
def test_any_key_comes_out_as_it_went_in(tmp_path: Path, key: str) -> None:
    change = pulumi(recommendation(setting(key)), write(tmp_path, STACK))
    change.write()
    assert pool_of(change.path.read_text(encoding="utf-8")).overrides == {key: Delays(2640.0, 60.0)}


@pytest.mark.parametrize(
    "pool",
    ["    - name: core\n", "    - unbind_delay: 600\n      name: core\n", "    - stop_delay: 600\n      name: core\n"],
)
def test_a_pool_may_have_any_of_the_delays_in_any_order(tmp_path: Path, pool: str) -> None:
    text = STACK[: STACK.index("    - name: other")] + pool
    found = pool_of(pulumi(recommendation(setting("BOS")), write(tmp_path, text)).after, 0)
    assert found.delays("x") == Delays(840.0, 60.0)
    assert found.delays("BOS") == Delays(2640.0, 60.0)


THEIR_OVERRIDE = """\
config:
    osrdyne:pools:
        -   name: core
            unbind_delay: PT10M
            overrides:
                # Their contract.
                vip:
                    unbind_delay: P1D
            limits:
                groups: 5
"""


def test_overrides_are_written_where_those_of_a_person_stand(tmp_path: Path) -> None:
    path = write(tmp_path, THEIR_OVERRIDE)
    change = pulumi(recommendation(setting("BOS")), path)
    assert change.becomes.overrides == {"vip": Delays(86_400.0, 60.0), "BOS": Delays(2640.0, 60.0)}
    assert '\n                "BOS":  # recommended' in change.after
    assert "                # Their contract.\n                vip:\n" in change.after
    change.write()
    assert pulumi(recommendation(setting("BOS")), path).diff() == ""


def test_seconds_are_written_with_all_their_digits(tmp_path: Path) -> None:
    exact = Delays(604_800.5, 1234.5678, prewarm=((604_801.25, 1_209_600.5), (2e6, 1e7 + 0.125)))
    small = Delays(0.00001, 60.0)
    overrides = WantedOverride("BOS", exact, "as before"), WantedOverride("LAX", small, "as before")
    wanted = WantedSettings("core", 1_000_000.5, 2e6, (), overrides)
    for text in (STACK, STACK.replace("delay: PT10M", "delay: 600")):
        change = edits.pulumi(wanted, write(tmp_path, text))
        assert (change.becomes.unbind_delay, change.becomes.stop_delay) == (1_000_000.5, 2e6)
        assert change.becomes.overrides == {"BOS": exact, "LAX": small}
        # As YAML 1.1 reads it, too
        reader = YAML(typ="safe")
        reader.version = (1, 1)
        assert PoolSettings.from_mapping(reader.load(change.after)["config"]["osrdyne:pools"][1]) == change.becomes


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\x85", "\t"])
def test_only_line_breaks_of_yaml_end_a_line(tmp_path: Path, char: str) -> None:
    text = STACK.replace("instance: test", f"instance: 'te{char}st'").replace("stack of", f"stack{char}# of")
    change = pulumi(recommendation(setting("BOS")), write(tmp_path, text))
    removed = [line for line in change.diff().split("\n")[2:] if line.startswith("-")]
    assert removed == ["-      unbind_delay: PT10M  # since May", "-      stop_delay: PT10M"]


def test_each_line_that_stays_keeps_its_line_break(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.test.yaml"
    before = STACK.replace("test\n", "test\r\n").replace("core\n", "core\r\n").rstrip("\n").encode()
    path.write_bytes(before)
    change = pulumi(recommendation(setting("BOS")), path)
    begin, end = change.after.index("      # recommended"), change.after.index("      delivery_limit")
    begin_before, end_before = before.index(b"      unbind_delay: PT10M  #"), before.index(b"      delivery_limit")
    assert change.after[:begin].encode() == before[:begin_before]
    assert change.after[end:].encode() == before[end_before:]
    assert change.after[begin:end].count("\n") == change.after[begin:end].count("\r\n")


def test_a_diff_says_where_a_file_ends_without_a_line_break(tmp_path: Path) -> None:
    path = write(tmp_path, "osrdyne_pool:\n  name: core\n  unbind_delay: 5")
    change = ansible(recommendation(), path)
    assert not change.after.endswith("\n")
    assert "-  unbind_delay: 5\n\\ No newline at end of file\n+  # recommended" in change.diff()
    assert change.diff().endswith("+  stop_delay: 60\n\\ No newline at end of file\n")


@pytest.mark.parametrize(
    "first", ["unbind_delay: 600", "overrides:\n        old:  # recommended: x\n          warm: []"]
)
def test_a_pool_may_begin_with_what_is_exchanged_before_a_setting_of_several_lines(tmp_path: Path, first: str) -> None:
    head = STACK[: STACK.index("    - name: other")]
    text = f"{head}    - {first}\n      # Of the machine.\n      limits:\n        groups: 5\n      name: core\n"
    path = write(tmp_path, text)
    change = pulumi(recommendation(setting("BOS")), path)
    assert change.becomes == dataclasses.replace(
        change.was, unbind_delay=840.0, stop_delay=60.0, overrides={"BOS": Delays(2640.0, 60.0)}
    )
    assert change.after.startswith(f"{head}    # recommended: before")
    assert "\n    - unbind_delay: " in change.after
    assert change.after.endswith("      # Of the machine.\n      limits:\n        groups: 5\n      name: core\n")
    change.write()
    assert pulumi(recommendation(setting("BOS")), path).diff() == ""


def test_delays_are_written_after_a_name_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, "osrdyne_pool:\n  name:\n    core\n  delivery_limit: 3\n")
    change = ansible(recommendation(), path)
    assert change.after.startswith("osrdyne_pool:\n  name:\n    core\n  # recommended")


COMMENTED = """\
osrdyne_pool:
  name: core
  unbind_delay:
    # Since May.
    PT10M
  delivery_limit: 3
  'overrides':  # Of the contract.

    # vip2:
    #   unbind_delay: P2D
    vip:
      unbind_delay: P1D
      # Until June.
    # One more is to come.

  # At the end.
broker: here
"""


def test_comments_among_overrides_stay_there_also_where_ours_go(tmp_path: Path) -> None:
    path = write(tmp_path, COMMENTED)
    theirs = COMMENTED[COMMENTED.index("  'overrides'") : COMMENTED.index("\n  # At the end")]
    change = ansible(recommendation(setting("BOS")), path)
    assert f'  stop_delay: PT1M\n{theirs}    "BOS":  # recommended' in change.after
    assert "    # Since May.\n  delivery_limit: 3\n\n  # At the end.\nbroker: here\n" in change.after
    change.write()
    without = ansible(recommendation(), path)
    assert f"  stop_delay: PT1M\n{theirs}    # Since May.\n  delivery_limit: 3\n" in without.after
    # Where all of the overrides are ours, their comments stay, and no empty table of overrides
    ours = path.read_text().replace("vip:\n", "vip:  # recommended: x\n").replace("      # Until June.\n", "")
    last = ansible(recommendation(), write(tmp_path, ours))
    assert last.becomes.overrides == {}
    assert "    #   unbind_delay: P2D\n    # One more is to come.\n" in last.after


def test_a_file_with_secrets_of_ansible_vault_is_changed(tmp_path: Path) -> None:
    secret = "password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n"
    change = ansible(recommendation(), write(tmp_path, f"osrdyne_pool:\n  name: core\n{secret}"))
    assert change.after.endswith(f"  stop_delay: 60\n{secret}")
    assert change.becomes.unbind_delay == 840.0


def test_a_file_that_lines_cannot_change_says_so(tmp_path: Path) -> None:
    path = write(
        tmp_path, "osrdyne_pool:\n  name: core\n  limits: {groups: 5,\n client_connections: 6}\n  stop_delay: 5\n"
    )
    with pytest.raises(NotChanged, match="cannot be changed line by line"):
        ansible(recommendation(), path)


def test_the_projects_own_files_take_a_change_that_touches_no_other_line(tmp_path: Path) -> None:
    stack = write(tmp_path, (ROOT / "infra/stacks/Pulumi.dev.yaml").read_text(encoding="utf-8"))
    change = pulumi(recommendation(setting("BOS")), stack)
    removed = [line for line in change.diff().splitlines()[2:] if line.startswith("-")]
    assert removed == ["-      unbind_delay: PT10M", "-      stop_delay: PT10M"]
    variables = write(tmp_path, (ROOT / "playbooks/vars/dev.yml").read_text(encoding="utf-8"))
    change = ansible(recommendation(setting("BOS", warm=(WarmWindow(("sat",), 0, 30),)), pool="airports"), variables)
    removed = [line for line in change.diff().splitlines()[2:] if line.startswith("-")]
    assert removed == ["-  unbind_delay: 4", "-  stop_delay: 4"]
    pool = PoolSettings.from_mapping(YAML(typ="safe").load(change.after)["osrdyne_pool"])
    assert (pool.unbind_delay, pool.consumer_timeout) == (840.0, 300.0)
    assert pool.overrides == {"BOS": Delays(2640.0, 60.0, ("sat 00:00-00:30",))}


@pytest.mark.parametrize(
    "text, problem",
    [
        (STACK.replace("name: core", "name: third"), "its pools: other, third"),
        (STACK.replace("name: other", "name: core"), "2 pools"),
        (STACK.replace("delivery_limit: 3", "delivery_limit: &three 3"), "anchors"),
        ("config:\n  osrdyne:pools: [{name: core, unbind_delay: 5}]\n", "braces"),
        (STACK.replace("delivery_limit: 3", "overrides: {a: {unbind_delay: 5}}"), "braces"),
        (STACK.replace("delivery_limit: 3", "surprise: 3"), "would not be accepted"),
        ("config: {\n", "not YAML"),
        ("- a\n", "not a table"),
        ("config:\n  a: 1\n", "its pools: none"),
        ("config:\n  a: 1\n  a: 2\n", "not YAML"),
    ],
)
def test_where_it_is_not_clear_what_to_change_nothing_is_written(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(NotChanged, match=problem):
        pulumi(recommendation(setting("BOS")), path)
    assert path.read_text(encoding="utf-8") == text


def test_without_a_recommendation_nothing_changes(tmp_path: Path) -> None:
    with pytest.raises(NotChanged, match="too short"):
        pulumi(recommendation(recommended=False, reasons=("too short",)), write(tmp_path, STACK))


def test_a_key_that_ansible_would_take_for_a_template_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "osrdyne_pool:\n  name: core\n")
    with pytest.raises(NotChanged, match="template"):
        ansible(recommendation(setting("{{ lookup('pipe', 'true') }}")), path)


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path, STACK)
    change = pulumi(recommendation(setting("BOS")), path)
    path.write_text(STACK + "# later\n", encoding="utf-8")
    with pytest.raises(NotChanged, match="meanwhile"):
        change.write()
    assert path.read_text(encoding="utf-8") == STACK + "# later\n"


def test_writing_keeps_the_files_mode_its_line_ends_and_a_link_to_it(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(STACK.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    pulumi(recommendation(setting("BOS")), link).write()
    written = path.read_bytes()
    assert b"PT14M\r\n" in written
    assert written.count(b"\n") == written.count(b"\r\n")
    assert (path.stat().st_mode & 0o777, link.is_symlink()) == (0o640, True)
    assert sorted(os.listdir(tmp_path)) == ["Pulumi.test.yaml", "link.yaml"]


def test_a_recommendation_is_plain_enough_for_json() -> None:
    one = recommendation(setting("BOS", warm=(WarmWindow(("mon",), 0, 30),)))
    again = json.loads(json.dumps(one.to_json()))
    assert again["overrides"][0]["warm"] == [{"days": ["mon"], "begin": 0, "end": 30}]
    assert set(again) == {field.name for field in dataclasses.fields(Recommendation)}
