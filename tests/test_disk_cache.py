"""The object cache on disk: hits, keys, damage, hostile and missing directories, races."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import disk, engine, objects
from tapec.ir import parse

KEY = "f" * 64
SQUARE = "func @f(%x: f64[]) -> (f64[]) {\n  %y = mul %x, %x : f64[]\n  return %y\n}"


@pytest.fixture(autouse=True)
def sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources may be edited while the tests run."""
    monkeypatch.setattr(objects, "_STARTED", float("inf"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    where = tmp_path / "cache"
    monkeypatch.setenv("TAPEC_CACHE", "1")
    monkeypatch.setenv("TAPEC_CACHE_DIR", str(where))
    monkeypatch.setattr(disk, "_warned", False)
    return where


def files(where: Path) -> list[Path]:
    return sorted(where.glob("*.o.tapec"))


@contextlib.contextmanager
def one_warning(pattern: str) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = [str(w.message) for w in caught]
    assert len(messages) == 1, messages
    assert pattern in messages[0]


# -- files ------------------------------------------------------------------------------


def test_store_and_load(cache: Path) -> None:
    assert disk.load(KEY) is None
    assert not cache.exists()  # looking for something makes nothing
    disk.store(KEY, b"code", {"n": 1})
    assert disk.load(KEY) == disk.Object(b"code", {"n": 1})
    assert disk.load("e" * 64) is None
    assert disk.usage()[0] == 1
    assert cache.stat().st_mode & 0o777 == 0o700
    (file,) = files(cache)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in cache.iterdir()] == [file.name]


def test_discard_and_clear(cache: Path) -> None:
    disk.store(KEY, b"code", {})
    disk.store("e" * 64, b"code", {})
    disk.discard(KEY)
    assert disk.load(KEY) is None
    (cache / "mine.txt").write_text("not ours")
    disk.clear()
    assert [p.name for p in cache.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:10],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
        lambda data: data.replace(b'"n": 1', b'"n": 2'),
        lambda data: data.replace(b"tapec object 1", b"tapec object 0"),
        lambda data: b"\0" * len(data),
    ],
    ids=["empty", "head", "cut", "longer", "bit", "header", "format", "zeros"],
)
def test_damaged_files_are_dropped_with_one_warning(cache: Path, damage: Any) -> None:
    disk.store(KEY, b"some code", {"n": 1})
    (file,) = files(cache)
    file.write_bytes(damage(file.read_bytes()))
    with one_warning("is damaged"):
        assert disk.load(KEY) is None
        assert not file.exists()
        file.write_bytes(b"again")
        assert disk.load(KEY) is None


def test_a_file_under_another_name_is_damaged(cache: Path) -> None:
    disk.store(KEY, b"code", {})
    files(cache)[0].rename(cache / ("a" * 64 + ".o.tapec"))
    with one_warning("is damaged"):
        assert disk.load("a" * 64) is None


def test_warnings_that_are_errors_do_no_harm(cache: Path) -> None:
    disk.store(KEY, b"code", {})
    files(cache)[0].write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert disk.load(KEY) is None


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symbolic links")
def test_a_symbolic_link_is_not_followed(cache: Path, tmp_path: Path) -> None:
    disk.store(KEY, b"code", {})
    (file,) = files(cache)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with one_warning("is damaged"):
        assert disk.load(KEY) is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users")
def test_a_file_that_others_may_write_is_not_used(cache: Path) -> None:
    disk.store(KEY, b"code", {})
    files(cache)[0].chmod(0o666)
    with one_warning("is damaged"):
        assert disk.load(KEY) is None


def test_a_directory_or_pipe_in_place_of_a_file(cache: Path) -> None:
    disk.store(KEY, b"code", {})
    (file,) = files(cache)
    file.unlink()
    os.mkfifo(file)
    with one_warning("is damaged"):
        assert disk.load(KEY) is None
    file.mkdir()
    assert disk.load(KEY) is None
    disk.store(KEY, b"code", {})


# -- directories ------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users")
@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_a_directory_that_others_may_write_is_refused(cache: Path, mode: int) -> None:
    disk.store(KEY, b"code", {})
    cache.chmod(mode)
    with one_warning("written to by other users"):
        assert disk.load(KEY) is None
        disk.store("e" * 64, b"code", {})
    assert len(files(cache)) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users")
def test_a_parent_that_anybody_may_write_is_refused(cache: Path) -> None:
    disk.store(KEY, b"code", {})
    cache.parent.chmod(0o777)
    try:
        with one_warning("anybody can write"):
            assert disk.load(KEY) is None
        cache.parent.chmod(0o1777)  # like /tmp: others cannot rename what is ours
        assert disk.load(KEY) is not None
    finally:
        cache.parent.chmod(0o755)


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can give away")
@pytest.mark.parametrize("what", ["directory", "parent", "file"])
def test_what_belongs_to_another_user_is_refused(cache: Path, what: str) -> None:
    disk.store(KEY, b"code", {})
    path = {"directory": cache, "parent": cache.parent, "file": files(cache)[0]}[what]
    os.chown(path, 12345, -1)
    try:
        with one_warning("is damaged" if what == "file" else "another user"):
            assert disk.load(KEY) is None
    finally:
        if path.exists():
            os.chown(path, 0, -1)


def test_another_user_looks_at_the_owner(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.store(KEY, b"code", {})
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with one_warning("another user"):
        assert disk.load(KEY) is None


def test_a_set_user_id_program_has_no_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert disk.directory() is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_full_or_broken_disk(cache: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def rename(self: Any, old: str, new: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk._Directory, "rename", rename)
    with one_warning(os.strerror(code)):
        disk.store(KEY, b"code", {})
        disk.store(KEY, b"code", {})
    assert not list(cache.iterdir())  # nothing half-written stays


def test_a_default_place_that_cannot_be_made_is_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TAPEC_CACHE", "1")
    monkeypatch.delenv("TAPEC_CACHE_DIR", raising=False)
    for base in ("/proc/nowhere", str(tmp_path / "file")):
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        disk.store(KEY, b"code", {})
        assert disk.load(KEY) is None


def test_a_chosen_place_that_cannot_be_made_warns(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEC_CACHE_DIR", "/proc/nowhere/tapec")
    with one_warning("/proc/nowhere/tapec"):
        disk.store(KEY, b"code", {})
        disk.store(KEY, b"code", {})


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for off in ("0", "off", " No "):
        monkeypatch.setenv("TAPEC_CACHE", off)
        assert disk.directory() is None
    monkeypatch.delenv("TAPEC_CACHE")
    monkeypatch.delenv("TAPEC_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/xdg")
    assert disk.directory() == "/var/xdg/tapec"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the standard
    assert disk.directory() == "/home/somebody/.cache/tapec"
    monkeypatch.setenv("TAPEC_CACHE_DIR", "~/mine")
    assert disk.directory() == "/home/somebody/mine"


def test_the_least_recently_used_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_CACHE_SIZE", "0.01")
    names = [f"{k:x}" * 64 for k in range(1, 10)]
    for age, name in enumerate(reversed(names)):
        disk.store(name, b"x" * 800, {})
        os.utime(cache / (name + ".o.tapec"), (0, time.time() - 10_000 - age))
    stale = cache / "0.1.tmp.tapec"
    stale.touch()
    os.utime(stale, (0, time.time() - 10_000))
    disk.load(names[0])  # was the oldest
    disk.store("0" * 64, b"x" * 3000, {})  # a key that looks at the size
    assert disk.usage()[1] <= 10_000
    left = {p.name[0] for p in files(cache)}
    assert {"0", "1", "9"} <= left and "2" not in left
    assert not stale.exists()


def test_the_number_of_files_is_bounded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_FILES", 10)
    for k in range(1, 60):
        disk.store(f"{k % 16:x}{k:063x}", b"", {})
    assert len(files(cache)) <= 10 + 16


def test_threads_store_and_load_one_key(cache: Path) -> None:
    wrong = []

    def work(k: int) -> None:
        for _ in range(50):
            disk.store(KEY, bytes([k]) * 5000, {"k": k})
            found = disk.load(KEY)
            if found is None or found.code != bytes([found.facts["k"]]) * 5000:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# -- keys -------------------------------------------------------------------------------


def key(text: str, opt: int | None = None) -> str:
    found = objects.function_key(parse(text), opt)
    assert isinstance(found, str)
    return found


def test_names_and_lines_do_not_matter() -> None:
    other = (
        SQUARE.replace("%x", "%other").replace("@f", "@g").replace(": f64[]\n", ": f64[] # a:1\n")
    )
    assert key(SQUARE) == key(other)


@pytest.mark.parametrize(
    "change",
    [
        ("f64", "f32"),
        ("f64[]", "f64[1]"),
        ("mul", "add"),
        ("mul %x, %x", "mul %x, %z"),
        ("return %y", "return %x"),
    ],
)
def test_structure_matters(change: tuple[str, str]) -> None:
    text = SQUARE.replace("(%x: f64[])", "(%x: f64[], %z: f64[])")
    assert key(text) != key(text.replace(*change))


def test_the_level_matters() -> None:
    assert len({key(SQUARE, opt) for opt in (None, 0, 2)}) == 3


def test_constants_matter_by_bits() -> None:
    text = "func @f() -> (f64[]) {{\n  %c = constant {{value={}}} : f64[]\n  return %c\n}}"
    values = ["0.0", "-0.0", "1.0", "nan", "-nan", "inf", "nan(0x7ff8000000000001)"]
    keys = {key(text.format(v)) for v in values}
    assert len(keys) == len(values)


def test_array_constants_and_attributes_matter() -> None:
    text = "func @f(%x: f64[4]) -> (f64[2]) {{\n  %y = slice %x {{size=(2), start=({}), step=({})}} : f64[2]\n  return %y\n}}"
    assert len({key(text.format(*p)) for p in ((0, 1), (1, 1), (0, 2))}) == 3
    dense = (
        "func @f() -> (i64[2]) {{\n  %c = constant {{value=dense({})}} : i64[2]\n  return %c\n}}"
    )
    assert key(dense.format("1,2")) != key(dense.format("1,3"))


def test_versions_cpu_and_sources_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {key(SQUARE)}

    def changed() -> None:
        objects._environment.cache_clear()
        keys.add(key(SQUARE))

    try:
        with monkeypatch.context() as m:
            m.setattr(tapec, "__version__", "0")
            changed()
        with monkeypatch.context() as m:
            m.setattr(engine._get_host(), "cpu", "another")
            changed()
        with monkeypatch.context() as m:
            m.setattr(engine._get_host(), "feature_text", "-avx2")
            changed()
        with monkeypatch.context() as m:
            m.setattr(np, "__version__", "0")
            changed()
        with monkeypatch.context() as m:
            m.setattr(sys.modules["tapec.ir"], "__path__", sys.modules["tapec.codegen"].__path__)
            changed()
        with monkeypatch.context() as m:  # sources newer than the process
            m.setattr(objects, "_STARTED", 0.0)
            objects._environment.cache_clear()
            assert objects.function_key(parse(SQUARE), None) is None
    finally:
        objects._environment.cache_clear()
    assert len(keys) == 6


# -- compilation ------------------------------------------------------------------------


def test_second_compilation_is_found(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = objects.kernel_object(parse(SQUARE))
    monkeypatch.setattr(objects, "compile_kernel", None)
    second = objects.kernel_object(parse(SQUARE.replace("%x", "%z")))
    assert (first.cached, second.cached) == (False, True)
    assert (first.code, first.facts) == (second.code, second.facts)


def test_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_CACHE", "0")
    for _ in range(2):
        assert not objects.kernel_object(parse(SQUARE)).cached
    assert not cache.exists()


def test_facts_of_another_version_are_compiled_again(cache: Path) -> None:
    made = objects.kernel_object(parse(SQUARE))
    assert made.key is not None
    disk.store(made.key, made.code, {"workspace_bytes": 0})
    assert not objects.kernel_object(parse(SQUARE)).cached
    assert objects.kernel_object(parse(SQUARE)).cached


def test_object_code_that_does_not_link_is_compiled_again(
    cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def f(x: Any) -> Any:
        return np.sum(np.exp(x) * 3.0)

    x = np.linspace(0, 1, 50)
    want = tapec.grad(f)(x)
    for file in files(cache):
        data = disk.load(file.name.removesuffix(".o.tapec"))
        assert data is not None
        if data.facts:  # a kernel; entries have none
            disk.store(file.name.removesuffix(".o.tapec"), b"\x7fELF rubbish", data.facts)
    np.testing.assert_array_equal(tapec.grad(lambda x: f(x))(x), want)
    capfd.readouterr()


PROGRAM = """
import json, sys
import numpy as np, tapec
from tapec.codegen import engine
compiled = []
inner = engine.object_code
engine.object_code = lambda *args: compiled.append(1) or inner(*args)
def loss(w, x, y):
    return np.mean((np.tanh(x @ w) - y) ** 2) + np.sum(np.abs(w) ** {power})
w, x = np.linspace(-1, 1, 5), np.cos(np.arange(45.0)).reshape(9, 5)
value, gradient = tapec.value_and_grad(loss)(w, x, np.ones(9))
print(json.dumps([value, gradient.tolist(), len(compiled)]))
"""


def start(cache: Path, power: float = 2, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "always", "-c", PROGRAM.format(power=power)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TAPEC_CACHE": "1", "TAPEC_CACHE_DIR": str(cache), **env},
    )


def result(process: subprocess.Popen[str]) -> tuple[Any, int, str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    value, gradient, compiled = json.loads(out)
    return (value, gradient), compiled, err


def test_a_second_process_compiles_nothing_and_gets_the_same(cache: Path) -> None:
    first, compiled, _ = result(start(cache))
    assert compiled > 0
    second, compiled, err = result(start(cache))
    assert (second, compiled, err) == (first, 0, "")


def test_processes_race(cache: Path) -> None:
    running = [start(cache) for _ in range(4)]
    found = [result(p) for p in running]
    assert all(got == found[0][0] for got, _, _ in found)
    assert not [err for _, _, err in found if err]
    assert not list(cache.glob("*.tmp.tapec"))
    assert result(start(cache))[1] == 0


def test_a_process_with_damaged_files_warns_once(cache: Path) -> None:
    want, _, _ = result(start(cache))
    for file in files(cache):
        file.write_bytes(file.read_bytes()[: 100 + len(file.name)])
    got, compiled, err = result(start(cache))
    assert got == want and compiled > 0
    assert err.count("RuntimeWarning") == 1
    assert result(start(cache))[1:] == (0, "")


def test_a_process_that_cannot_write_files(cache: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        + PROGRAM.format(power=2)
    )
    cache.mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "TAPEC_CACHE": "1", "TAPEC_CACHE_DIR": str(cache)},
    )
    assert json.loads(done.stdout)[2] > 0
    assert done.stderr.count("RuntimeWarning") == 1
    assert not list(cache.iterdir())
