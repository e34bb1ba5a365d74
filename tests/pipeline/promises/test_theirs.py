"""An override that a person wrote stays theirs: through a change that replaces it, and through going back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from osrdyne_pipeline.promises.changes import AppliedChange, ReplayCorrection
from osrdyne_pipeline.promises.going_back import going_back
from osrdyne_pipeline.promises.verdict import BROKEN, Review
from osrdyne_pipeline.recommendation.edit import change, settings_file
from osrdyne_pipeline.recommendation.edit.change import FileChange
from osrdyne_pipeline.recommendation.edit.wanted import MARK, WantedOverride, WantedSettings
from osrdyne_pool.settings import Delays

YAML = """\
core:
  - name: core
    unbind_delay: 600
    stop_delay: 600
    overrides:
      # Their contract.
      vip:
        unbind_delay: 86400
        stop_delay: 600
"""
STACK = "config:\n" + "".join(f"  {line}\n" for line in YAML.replace("core:", "osrdyne:pools:").splitlines())
VARIABLES = YAML.replace("core:", "daemon_pool:", 1).replace("  - name", "    name").replace("\n    ", "\n  ")
TOML = """\
[pool]
name = "core"
unbind_delay = 600
stop_delay = 600
# Their contract.
[pool.overrides.vip]
unbind_delay = 86400
stop_delay = 600
"""
THEIRS, OURS = Delays(86_400.0, 600.0), Delays(3585.0, 15.0)

Edit = Callable[[WantedSettings, Path], FileChange]
KINDS = [(change.pulumi, STACK), (change.ansible, VARIABLES), (settings_file.settings, TOML)]
NAMES = ["pulumi", "ansible", "settings"]


def wanted(**overrides: Delays) -> WantedSettings:
    named = tuple(WantedOverride(key, delays, "cold 100 -> 30") for key, delays in overrides.items())
    return WantedSettings("core", 1185.0, 15.0, ("before 600 + 600 s",), named)


def written(edit: Edit, what: WantedSettings, path: Path) -> FileChange:
    found = edit(what, path)
    found.write()
    return found


@pytest.mark.parametrize("edit, text", KINDS, ids=NAMES)
@pytest.mark.parametrize("whole", [True, False])
def test_what_a_person_wrote_is_theirs_again_after_going_back(
    tmp_path: Path, edit: Edit, text: str, whole: bool
) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    # Given a change that replaced it
    first = written(edit, wanted(vip=OURS, BOS=OURS), path)
    assert (first.theirs, first.becomes.overrides) == (frozenset({"vip"}), {"vip": OURS, "BOS": OURS})
    one = AppliedChange(0.0, first.was, first.becomes, None, ReplayCorrection(), (), ("vip", "BOS"), ("vip",))
    # When all goes back, or the key alone
    back = going_back(one, Review(BROKEN, 3, back=whole, back_keys=() if whole else ("vip",)))
    assert back is not None
    second = written(edit, back, path)
    assert second.becomes.overrides == ({"vip": THEIRS} if whole else {"vip": THEIRS, "BOS": OURS})
    # Then the next change leaves it alone
    third = written(edit, wanted(LAX=OURS), path)
    assert (third.theirs, third.becomes.overrides) == (frozenset({"vip"}), {"vip": THEIRS, "LAX": OURS})


@pytest.mark.parametrize("edit, text", KINDS, ids=NAMES)
def test_what_a_person_wrote_and_is_recommended_stays_as_it_is(tmp_path: Path, edit: Edit, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    first = written(edit, wanted(vip=THEIRS), path)
    assert "# Their contract." in first.after
    assert f"vip:  {MARK}" not in first.after.replace('"', "")
    second = written(edit, wanted(), path)
    assert (second.theirs, second.becomes.overrides) == (frozenset({"vip"}), {"vip": THEIRS})


TABLE = """\
# Their contract.
[pool.overrides.vip] # till June # or July
# They pay.
unbind_delay = 86400 # a day
stop_delay = 600

# Others.
[pool.overrides.zed]
unbind_delay = 900
"""


def after_going_back(edit: Edit, path: Path) -> tuple[str, str]:
    """Return a file's text after a change of the overrides `vip` and `BOS`, and after going back."""
    first = written(edit, wanted(vip=OURS, BOS=OURS), path)
    one = AppliedChange(0.0, first.was, first.becomes, None, ReplayCorrection(), (), ("vip", "BOS"), ("vip",))
    back = going_back(one, Review(BROKEN, 3, back=True))
    assert back is not None
    return first.after, written(edit, back, path).after


@pytest.mark.parametrize(
    "override",
    [
        TABLE,
        "[pool.overrides]\n# Their contract.\nvip = {unbind_delay = 86400, stop_delay = 600} # till June\n",
    ],
    ids=["table", "within braces"],
)
def test_what_a_person_wrote_around_their_override_in_toml_stays(tmp_path: Path, override: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f'[pool]\nname = "core"\nunbind_delay = 600\nstop_delay = 600\n{override}\n[broker]\n')
    changed, back = after_going_back(settings_file.settings, path)
    assert "# recommended: cold 100 -> 30 # till June" in changed
    assert override in back


@pytest.mark.parametrize("edit, text", KINDS[:2], ids=NAMES[:2])
def test_what_a_person_wrote_above_their_override_in_yaml_stays_above_it(tmp_path: Path, edit: Edit, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    for after in after_going_back(edit, path):
        lines = [line.strip() for line in after.splitlines()]
        assert lines[lines.index("# Their contract.") + 1].startswith('"vip":')
