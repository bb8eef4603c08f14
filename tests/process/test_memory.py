from __future__ import annotations

from sampler.process.memory import available_memory


def test_cached_files_do_not_count_as_used_memory(monkeypatch):
    files = {
        "/sys/fs/cgroup/memory.max": "1000000",
        "/sys/fs/cgroup/memory.current": "900000",
        "/sys/fs/cgroup/memory.stat": "anon 100000\nfile 800000\ninactive_file 700000\n",
    }

    def read(path):
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr("pathlib.Path.read_text", read)
    assert available_memory() == 800_000
    files["/sys/fs/cgroup/memory.max"] = "max"
    assert available_memory() > 1_000_000
