"""The `cue` command as a process: limits with stand-ins, and programs if `cue` is installed."""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.engine.loads import ApiLoad, CueLoad
from reconciler.errors import Invalid, InvalidPolicy, InvalidSetting, Unavailable
from reconciler.isolation.cue import CueCommand, CueLimits, NoCue, WithCue, cue_at
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.loader import MemoryLoader
from tests.linux import linux

LOAD = CueLoad(source="patches: []", data='{"object": {"a": "canary"}}', output="patches")
PATIENT = CueLimits(seconds=30.0, answer=1000)
SOON = CueLimits(seconds=0.5, memory=64 << 20, answer=1000)


@pytest.fixture
def standing_in(tmp_path: Path) -> Callable[[str], CueCommand]:
    """Return a function that writes a shell script in the place of `cue`."""

    def made(script: str, limits: CueLimits = SOON) -> CueCommand:
        file = tmp_path / "cue"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o700)
        return CueCommand(file=file, limits=limits)

    return made


class TestProcess:
    async def test_the_command_has_its_own_folder_and_a_clean_environment(
        self, standing_in, monkeypatch
    ):
        monkeypatch.setenv("CANARY", "canary")
        script = 'printf "[%s, %s]" "$(env | wc -l)" "$(ls | wc -l)"; env >&2; exit 0'
        found = await standing_in(script, CueLimits(seconds=30.0)).evaluate(LOAD)
        # HOME, CUE_REGISTRY, GOMAXPROCS, and PWD, which the shell sets itself.
        assert found == [4, 2]

    async def test_the_folder_of_the_command_is_deleted_afterwards(self, standing_in):
        where = await standing_in('printf "\\"%s\\"" "$PWD"', PATIENT).evaluate(LOAD)
        assert not Path(where).exists()

    @linux
    async def test_a_command_over_its_time_is_killed_with_its_children(
        self, standing_in, tmp_path
    ):
        pids = tmp_path / "pids"
        script = f"sleep 60 & echo $! > {pids}; echo $$ >> {pids}; wait"
        begun = time.monotonic()
        with pytest.raises(Invalid, match=r"takes more than 0\.5 s"):
            await standing_in(script).evaluate(LOAD)
        assert time.monotonic() - begun < 20
        for pid in pids.read_text().split():
            assert not await _lives(int(pid))

    async def test_output_above_the_limit_is_refused(self, standing_in):
        with pytest.raises(Invalid, match="returns more than 1000 bytes"):
            await standing_in("head -c 2000 /dev/zero", PATIENT).evaluate(LOAD)

    async def test_a_command_with_endless_output_is_killed(self, standing_in):
        with pytest.raises(Invalid, match="takes more than"):
            await standing_in("cat /dev/zero").evaluate(LOAD)

    async def test_a_command_that_needs_too_much_memory_fails(self, standing_in):
        script = "exec python3 -c \"x = bytearray(200 << 20); print('[]')\""
        limits = CueLimits(seconds=80.0, memory=64 << 20)
        command = standing_in(f"PATH={os.environ['PATH']} {script}", limits)
        with pytest.raises(Invalid, match="cannot be evaluated"):
            await command.evaluate(LOAD)

    async def test_files_cannot_exceed_the_output_limit(self, standing_in):
        script = "head -c 40000 /dev/zero > file; wc -c < file"
        # The unit of the limit is 512 bytes, in some shells 1,024.
        assert await standing_in(script, CueLimits(seconds=30.0, answer=1024)).evaluate(LOAD) in {
            1024,
            2048,
        }

    async def test_error_output_is_hidden_except_for_its_position(self, standing_in):
        script = "echo 'conflicting values \"canary\": ./policy.cue:3:7' >&2; exit 1"
        command = standing_in(script, PATIENT)
        with pytest.raises(Invalid) as failed:
            await command.evaluate(LOAD)
        text = "the CUE program cannot be evaluated: line 3, column 7"
        assert str(failed.value) == text
        with pytest.raises(InvalidPolicy, match="cannot be parsed: line 3, column 7"):
            await command.check("x", location="spec")

    async def test_the_whole_program_is_evaluated_before_its_output(self, standing_in):
        script = "echo 1; [ $1 = export ] || { echo policy.cue:3:7 >&2; exit 1; }"
        with pytest.raises(Invalid, match="cannot be evaluated: line 3, column 7"):
            await standing_in(script, PATIENT).evaluate(LOAD)

    async def test_a_command_that_cannot_be_started_is_unavailable(self, tmp_path):
        with pytest.raises(Unavailable, match="cannot be started"):
            await CueCommand(file=tmp_path / "none").evaluate(LOAD)

    async def test_a_command_whose_folder_cannot_be_written_is_unavailable(
        self, standing_in, without_descriptors, tmp_path_factory, monkeypatch
    ):
        folders = tmp_path_factory.mktemp("folders")
        monkeypatch.setattr(tempfile, "tempdir", str(folders))
        command = standing_in("echo 1", PATIENT)
        with pytest.raises(Unavailable, match="Too many open files"), without_descriptors():
            await command.evaluate(LOAD)
        assert await command.evaluate(LOAD) == 1
        assert list(folders.iterdir()) == []

    async def test_files_that_a_command_leaves_behind_are_removed(
        self, standing_in, tmp_path_factory, monkeypatch
    ):
        folders = tmp_path_factory.mktemp("folders")
        monkeypatch.setattr(tempfile, "tempdir", str(folders))
        assert await standing_in("mkdir -p a/b; touch a/b/c; echo 1", PATIENT).evaluate(LOAD) == 1
        assert list(folders.iterdir()) == []

    @pytest.mark.parametrize("value", ["1e400", "[" * 1_100 + "]" * 1_100])
    async def test_output_that_cannot_be_decoded_is_refused(self, standing_in, value):
        limits = CueLimits(seconds=30.0, answer=10_000)
        with pytest.raises(Invalid, match="nested too deeply or has too large a number"):
            await standing_in(f"echo '{value}'", limits).evaluate(LOAD)

    async def test_slow_programs_of_one_tenant_do_not_delay_those_of_another(
        self, standing_in, tmp_path
    ):
        wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
        command = standing_in(f"if grep -q slow policy.cue; then {wait}; fi; echo 1", PATIENT)
        slow = CueLoad(source="slow", data="{}", output="patches", tenant="a")
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(command.evaluate(slow))
            await asyncio.sleep(0)
            async with asyncio.timeout(20):
                assert await command.evaluate(replace(slow, source="quick", tenant="b")) == 1
            (tmp_path / "go").touch()


async def _lives(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        await asyncio.sleep(0.05)
    return True


class TestSetting:
    async def test_without_a_command_programs_are_refused(self):
        command = cue_at("")
        assert isinstance(command, NoCue)
        with pytest.raises(InvalidPolicy, match="start both programs with --cue=PATH"):
            await command.check("x", location="spec")
        with pytest.raises(Invalid, match="start both programs with --cue=PATH"):
            await command.evaluate(LOAD)

    @pytest.mark.parametrize("path", ["cue", "/none", "/"])
    def test_a_path_that_is_not_a_command_is_refused(self, path):
        with pytest.raises(InvalidSetting, match="path of the cue command, an executable file"):
            cue_at(path)

    async def test_other_loads_are_passed_to_the_wrapped_loader(self):
        loader = WithCue(MemoryLoader(MemoryCluster()), NoCue())
        load = ApiLoad(method="GET", path="/api/v1/namespaces")
        assert (await loader.load(load))["items"] == []
        with pytest.raises(Invalid, match="CUE is not evaluated"):
            await loader.acting_as(None).load(LOAD)


@pytest.mark.skipif(shutil.which("cue") is None, reason="the cue command is not installed")
class TestPrograms:
    @pytest.fixture
    def command(self) -> CueCommand:
        return CueCommand(file=Path(str(shutil.which("cue"))), limits=CueLimits(seconds=20.0))

    async def test_a_program_reads_its_data(self, command):
        source = 'object: _ @tag(object)\npatches: [{op: "add", path: "/b", value: object.a}]'
        load = CueLoad(source=source, data='{"object": {"a": "x"}}', output="patches")
        assert await command.evaluate(load) == [{"op": "add", "path": "/b", "value": "x"}]

    async def test_a_program_without_the_output_field_returns_nothing(self, command):
        assert await command.evaluate(CueLoad(source="a: 1", data="{}", output="patches")) is None

    @pytest.mark.parametrize("source", ["patches: [", "patches: [{a: string}]"])
    async def test_an_invalid_program_is_refused(self, command, source):
        with pytest.raises(Invalid, match="cannot be evaluated"):
            await command.evaluate(CueLoad(source=source, data="{}", output="patches"))

    async def test_an_object_that_contradicts_another_part_of_the_program_is_an_error(
        self, command
    ):
        source = "object: a: int\nother: string\nvalidate: valid: true"
        load = CueLoad(source=source, data='{"object": {"a": 1}}', output="validate")
        assert await command.evaluate(load) == {"valid": True}
        with pytest.raises(Invalid, match="cannot be evaluated: line 1, column 12"):
            await command.evaluate(replace(load, data='{"object": {"a": "canary"}}'))

    async def test_a_program_that_fills_memory_is_ended(self, command):
        source = 'import "list"\npatches: list.Range(0, 100000000, 1)'
        with pytest.raises(Invalid, match=r"cannot be evaluated|takes more"):
            await command.evaluate(CueLoad(source=source, data="{}", output="patches"))

    async def test_a_program_cannot_read_files_or_other_modules(self, command):
        for source in (
            '@extern(embed)\npackage a\npatches: _ @embed(file="/etc/hostname",type=text)',
            'import "example.com/a"\npatches: a.b',
        ):
            with pytest.raises(Invalid):
                await command.evaluate(CueLoad(source=source, data="{}", output="patches"))
