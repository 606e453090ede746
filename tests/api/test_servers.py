import pytest

from tests.api.servers import BINARIES, binary


def test_programs_that_are_not_there_fail_the_tests_and_say_where_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv(BINARIES, str(tmp_path))

    with pytest.raises(pytest.fail.Exception, match=f"etcd is not in {tmp_path}.*put both on the PATH.*{BINARIES}"):
        binary("etcd")


def test_programs_are_taken_from_the_folder_that_is_named(monkeypatch, tmp_path):
    program = tmp_path / "etcd"
    program.touch(mode=0o755)
    monkeypatch.setenv(BINARIES, str(tmp_path))

    assert binary("etcd") == program
