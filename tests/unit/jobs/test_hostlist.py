"""Host lists are read and written as Slurm does, and junk is refused in words."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import compress, expand
from sbtrain_jobs.process import run_command


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("node", ("node",)),
        ("node7", ("node7",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[01-03,15]", ("n01", "n02", "n03", "n15")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("n[3,1,1]", ("n3", "n1", "n1")),
        ("n1,n[3-4],login", ("n1", "n3", "n4", "login")),
        (",n1,,n2,", ("n1", "n2")),
        ("n1 n2\nn3", ("n1", "n2", "n3")),
        ("rack[1-2]n[3-4]", ("rack1n3", "rack1n4", "rack2n3", "rack2n4")),
        ("n[1-2][3-4]", ("n13", "n14", "n23", "n24")),
        ("a[7]b[1-2]", ("a7b1", "a7b2")),
        ("n[1-]", ("n1",)),
        ("n[1, 2]", ("n1", "n02")),
        ("n[+1-+2]", ("n01", "n02")),
        ("[1-2]", ("1", "2")),
        # three brackets: the last runs fastest, then the first (Slurm's own order)
        ("n[1-2][3-4]x[5]", ("n13x5", "n23x5", "n14x5", "n24x5")),
    ],
)
def test_reads_the_whole_grammar(text: str, hosts: tuple[str, ...]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        "n[1-2",
        "n1-2]",
        "n[]",
        "n[a-b]",
        "n[1,,2]",
        "n[2-1]",
        "a[[1]]",
        "n[1--2]",
        "n[-1]",
        "n[1- ]",
        "n[1 ]",
        "a[1-2]b",
        "n[1-2,5]-ib",
        "n[1]x[2]y",
        "n[1-65537]",
    ],
)
def test_refuses_what_is_not_a_host_list(text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        expand(text)
    assert text in caught.value.message
    assert caught.value.hint


def test_does_not_fill_memory_with_a_huge_range() -> None:
    with pytest.raises(LaunchError, match="too many"):
        expand("n[1-999999999999]")
    assert len(expand("n[1-65536]")) == 65_536
    with pytest.raises(LaunchError, match="too many"):
        expand("n[1-3],m[1-3]", limit=5)
    assert len(expand("n[1-3],m[1-2]", limit=5)) == 5


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ((), ""),
        (("login",), "login"),
        (("n1",), "n1"),
        (("n1", "n2", "n3", "n7"), "n[1-3,7]"),
        (("n08", "n09", "n10"), "n[08-10]"),
        (("n9", "n10"), "n[9-10]"),
        (("n01", "n2", "n3"), "n[01,2-3]"),
        (("n3", "n1", "n2"), "n[3,1-2]"),
        (("r1n1", "r1n2", "r2n1"), "r1n[1-2],r2n1"),
        (("a1b", "a2b"), "a1b,a2b"),
        (("a1", "login", "a2"), "a1,login,a2"),
    ],
)
def test_writes_the_short_form(hosts: tuple[str, ...], text: str) -> None:
    assert compress(hosts) == text


@pytest.mark.parametrize("host", ["", "a b", "a,b", "a[1]"])
def test_writes_no_name_that_could_not_be_read_again(host: str) -> None:
    with pytest.raises(LaunchError):
        compress([host])


_stem = st.from_regex(r"[a-z][a-z-]{0,3}", fullmatch=True)
_number = st.integers(0, 120).flatmap(
    lambda value: st.integers(1, 4).map(lambda width: str(value).zfill(width))
)
_hosts = st.lists(
    st.tuples(_stem, _number, st.sampled_from(["", "", "", "x", "-ib"])).map("".join),
    max_size=30,
)


@given(_hosts)
def test_what_is_written_is_read_back_in_the_same_order(hosts: list[str]) -> None:
    assert expand(compress(hosts)) == tuple(hosts)


_range = st.one_of(
    _number,
    st.tuples(st.integers(0, 99), st.integers(0, 6), st.integers(1, 3)).map(
        lambda drawn: f"{str(drawn[0]).zfill(drawn[2])}-{drawn[0] + drawn[1]}"
    ),
)
_bracket = st.lists(_range, min_size=1, max_size=3).map(lambda ranges: f"[{','.join(ranges)}]")
_word = st.one_of(
    st.tuples(_stem, _number).map("".join),
    st.lists(st.tuples(_stem, _bracket).map("".join), min_size=1, max_size=3).map("".join),
)


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="scontrol is not installed")
def test_agrees_with_scontrol(tmp_path_factory: pytest.TempPathFactory) -> None:
    """scontrol needs a configuration it can read, but no cluster that runs."""
    conf = tmp_path_factory.mktemp("conf") / "slurm.conf"
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n"
    )
    environment = {"SLURM_CONF": str(conf), "PATH": "/usr/bin:/bin:/usr/local/bin"}

    def hostnames(text: str) -> tuple[str, ...]:
        result = run_command(
            ["scontrol", "show", "hostnames", text], timeout_s=20, env=environment
        )
        assert not result.stderr, result.stderr
        return tuple(result.stdout.split())

    @settings(max_examples=60, deadline=None)
    @given(st.lists(_word, min_size=1, max_size=4).map(",".join))
    def reads_the_same(text: str) -> None:
        assert expand(text) == hostnames(text)

    @settings(max_examples=40, deadline=None)
    @given(_hosts.filter(bool))
    def scontrol_reads_what_we_write(hosts: list[str]) -> None:
        assert hostnames(compress(hosts)) == tuple(hosts)

    reads_the_same()
    scontrol_reads_what_we_write()
    assert len(hostnames(compress([f"n{i}" for i in range(70_000)]))) == 70_000
