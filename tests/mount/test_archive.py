# SPDX-License-Identifier: Apache-2.0
"""`inductorfs export` and `import`: a cluster in a file, and the file in another cluster; damaged and hostile files."""
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.mounts import QuickCluster, appears, blobs, populate, published
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.users import as_user


@pytest.fixture
def other():
    """Another cluster, which has nothing."""
    with QuickCluster() as made:
        yield made


@pytest.fixture
def filled(cluster, tmp_path):
    """(node, its artefacts, an archive of all of them)"""
    node = cluster.quick("a")
    names = populate(node)
    node.sync()
    wanted = tmp_path / "all.tar.zst"
    done = archive(cluster, "export", wanted)
    assert done.code == 0, done.err
    return node, names, wanted


def archive(cluster, word, *words, **environment):
    return run([places.program(), word, "--remote", cluster.redis.url, *words], {"PATH": "/usr/bin:/bin", **environment}, 60)


def report(done, code=0):
    assert done.code == code, f"{done.code}: {done.out}{done.err}"
    return json.loads(done.out)


def unpacked(path):
    """[(name, bytes)]"""
    plain = subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]


def packed(path, members):
    """Writes (name, bytes) or whole TarInfo as an archive."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            tar.addfile(info, io.BytesIO(member[1]))
    path.write_bytes(subprocess.run(["zstd", "-cq"], input=plain.getvalue(), check=True, capture_output=True).stdout)
    return path


def test_what_one_cluster_exports_another_imports(cluster, other, filled):
    node, names, wanted = filled
    first = report(archive(other, "import", "--json", wanted))
    assert first["done"] == len(published(cluster)) and first["had"] == 0 and first["refused"] == {}
    assert published(other) == published(cluster)
    b = other.quick("b")
    for name in names:
        if "__grp__" not in name.name:
            assert appears(b.cache / name).read_bytes() == (node.cache / name).read_bytes()
    again = report(archive(other, "import", "--json", wanted))
    assert again["done"] == 0 and again["had"] == first["done"]


def test_a_pipe_and_the_scopes(cluster, other, filled):
    pipe = f"{places.program()} export --remote {cluster.redis.url} - | {places.program()} import --remote {other.redis.url} -"
    done = run(["bash", "-o", "pipefail", "-c", pipe], seconds=60)
    assert done.code == 0 and f"imported {len(published(cluster))} artefacts" in done.out, done.out + done.err
    scopes = set(cluster.redis.keys("*:idx"))
    assert set(other.redis.keys("*:idx")) == scopes != set()
    assert len(other.redis.keys("*:about")) == len(scopes), "a scope with artefacts is announced, too"


@pytest.mark.usefixtures("root")
def test_what_only_a_user_shares_is_imported_when_it_is_asked_for(cluster, other, tmp_path):
    """That user's jobs run it: whoever calls import must know."""
    node = cluster.quick("a")
    cluster.directory.chmod(0o755)
    node.root.chmod(0o755)
    (node.cache / "hers").mkdir()
    os.chown(node.cache / "hers", 54321, 54321)
    as_user(54321, 0o022, artefacts.write_atomic, node.cache / "hers", artefacts.code("hers"), "int hers;")
    artefacts.write_atomic(node.cache, artefacts.code("everybody's"), "int all;")
    node.sync()
    wanted = tmp_path / "all.tar.zst"
    assert report(archive(cluster, "export", "--json", wanted))["done"] == 2
    taken = archive(other, "import", wanted)
    assert taken.code == 3 and "imported 1 artefact for user=root;" in taken.out, taken.out + taken.err
    assert "left out 1 artefact: for user=#54321 only, whose jobs would run it" in taken.out, taken.out
    asked = report(archive(other, "import", "--json", "--for", "user=#54321", wanted))
    assert asked["done"] == 1 and asked["had"] == 1 and asked["for"] == ["user=#54321", "user=root"]
    assert report(archive(other, "import", "--json", "--for", "all", wanted))["had"] == 2


def test_an_archive_that_inflates_to_more_than_the_disk_has_is_refused_before_it_does(other, filled, tmp_path):
    members = unpacked(filled[2])
    manifest = json.loads(members[0][1])
    entry = next(one for one in manifest["entries"] if one["path"].endswith(".cpp"))
    manifest["entries"] += [entry | {"digest": hashlib.sha256(str(number).encode()).hexdigest(), "size": 512 << 20} for number in range(100_000)]
    bomb = packed(tmp_path / "bomb", [(members[0][0], json.dumps(manifest).encode()), *members[1:]])
    done = archive(other, "import", bomb)
    assert done.code == 1 and "MiB to spare: name another TMPDIR" in done.err, done.out + done.err
    assert not published(other)


def test_a_selection(cluster, filled, tmp_path):
    wanted = tmp_path / "some.tar.zst"
    some = report(archive(cluster, "export", "--json", "--family", "fxgraph", wanted))
    assert some["done"] == some["blobs"] == 6
    assert report(archive(cluster, "export", "--json", "--pattern", "triton/**", wanted))["done"] > 6
    none = archive(cluster, "export", "--torch", "9.9", wanted)
    assert none.code == 2 and "nothing of this selection" in none.err
    assert len(unpacked(wanted)) > 1, "the earlier file stays"
    assert [path.name for path in tmp_path.iterdir()].count("some.tar.zst") == 1
    assert archive(cluster, "export", "--pattern", "a//b", wanted).code == 2
    nowhere = archive(cluster, "export", tmp_path / "none/x.tar.zst")
    assert nowhere.code == 2 and "its directory has to be there" in nowhere.err


def test_a_family_of_the_configuration_alone(cluster, other, tmp_path):
    """Without --config everything that was selected is left out, and both commands say why; with it, nothing is."""
    file = tmp_path / "node.toml"
    file.write_text('[families.mine]\npattern = "mine/*.bin"\nshared = true\nfacets = ["torch"]\n')
    node = cluster.quick("a", "--config", file)
    artefacts.write_atomic(node.cache, "mine/x.bin", "x")
    node.sync()
    wanted = tmp_path / "mine.tar.zst"
    left = archive(cluster, "export", wanted)
    assert left.code == 3 and "left out 1 artefact: " in left.out and "--config" in left.out, left.out + left.err
    assert report(archive(other, "import", "--json", wanted))["done"] == 0
    assert report(archive(cluster, "export", "--json", "--config", file, wanted))["done"] == 1
    without = archive(other, "import", wanted)
    assert without.code == 3 and "no shared family" in without.out and "--config" in without.out, without.out + without.err
    assert report(archive(other, "import", "--json", "--config", file, wanted))["done"] == 1


def test_the_server_by_a_variable_and_a_wrong_one(cluster, filled, tmp_path):
    done = run([places.program(), "export", tmp_path / "x"], {"PATH": "/bin", "INDUCTORFS_REMOTE": cluster.redis.url}, 60)
    assert done.code == 0, done.err
    away = run([places.program(), "export", "--remote", "redis://127.0.0.1:1", tmp_path / "y"], {"PATH": "/bin"}, 60)
    assert away.code == 1 and "127.0.0.1:1" in away.err and not (tmp_path / "y").exists()
    none = run([places.program(), "import", tmp_path / "x"], {"PATH": "/bin"}, 60)
    assert none.code == 2 and "--remote" in none.err


def test_bytes_that_the_cluster_has_lost(cluster, other, filled, tmp_path):
    cluster.redis.command("DEL", *list(blobs(cluster))[:1])
    wanted = tmp_path / "part.tar.zst"
    part = report(archive(cluster, "export", "--json", wanted), 3)
    assert list(part["refused"]) == ["the cluster has lost the bytes"]
    taken = report(archive(other, "import", "--json", wanted), 3)
    assert taken["done"] > 10 and sum(taken["refused"].values()) >= 1
    repaired = report(archive(cluster, "import", "--json", filled[2]))
    assert repaired["refused"] == {} and len(blobs(cluster)) == part["blobs"] + 1, "import sends again what was lost"


def test_other_bytes_of_the_cluster_stay(cluster, other, filled):
    node, names, wanted = filled
    code = next(name for name in names if name.suffix == ".cpp")
    b = other.quick("b")
    artefacts.write_atomic(b.cache, code, "other bytes")
    b.sync()
    taken = report(archive(other, "import", "--json", wanted))
    assert taken["had"] == 1 and (b.cache / code).read_text() == "other bytes"


def damaged(members):
    """[(what, the members)]"""
    name, manifest = members[0]
    read = json.loads(manifest)

    def changed(change):
        copy = json.loads(manifest)
        change(copy)
        return [(name, json.dumps(copy).encode()), *members[1:]]

    link = tarfile.TarInfo(members[1][0])
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device = tarfile.TarInfo("blobs/" + "0" * 64)
    device.type = tarfile.CHRTYPE
    assert read["format"] == "inductorfs-archive"
    yield "no manifest", members[1:]
    yield "a link", [members[0], link]
    yield "a device", [members[0], device]
    yield "a path that leads out", [members[0], ("../blobs/" + "0" * 64, b"x")]
    yield "another file", [*members, ("readme", b"x")]
    yield "a blob twice", [*members, members[1]]
    yield "no JSON", [(name, b"{"), *members[1:]]
    yield "deep JSON", [(name, b"[" * 100_000), *members[1:]]
    yield "much JSON", [(name, b"[" + b"0," * 10_000_000 + b"0]"), *members[1:]]
    yield "another format", changed(lambda one: one.update(format="x"))
    yield "a newer version", changed(lambda one: one.update(version=2))
    yield "entries that are none", changed(lambda one: one.update(entries={}))
    yield "too many scopes", changed(lambda one: one.update(scopes=[{}] * 5000))


def test_files_that_are_no_archives(cluster, other, filled, tmp_path):
    members = unpacked(filled[2])
    for what, bad in damaged(members):
        done = archive(other, "import", packed(tmp_path / "bad.tar.zst", bad))
        assert done.code == 2 and ("archive" in done.err), f"{what}: {done.code} {done.out}{done.err}"
    whole = filled[2].read_bytes()
    for what, raw in (("empty", b""), ("noise", bytes(range(256)) * 64), ("cut off", whole[:len(whole) // 2])):
        (tmp_path / "bad.tar.zst").write_bytes(raw)
        done = archive(other, "import", tmp_path / "bad.tar.zst")
        assert done.code == 2 and "archive" in done.err, f"{what}: {done.code} {done.out}{done.err}"
    assert archive(other, "import", tmp_path).code == 2, "a directory"
    cut = run(["bash", "-c", f"head -c 1000 {filled[2]} | {places.program()} import --remote {other.redis.url} -"], seconds=60)
    assert cut.code == 1 and "archive" in cut.err, "another try through a pipe may bring more"
    assert published(other) == [], "nothing of a damaged file is published"


def test_entries_that_are_none(cluster, other, filled, tmp_path):
    name, manifest = unpacked(filled[2])[0]
    bytes_of = dict(unpacked(filled[2])[1:])
    for change, why in (({"path": "../../etc/passwd"}, "a path is not one"), ({"path": "/etc/passwd"}, "a path is not one"),
                        ({"path": "locks/x.lock"}, "no shared family"), ({"size": 1 << 60}, "larger"), ({"scope": 99}, "of no scope"),
                        ({"digest": "x"}, "a path is not one"), ({"size": 5}, "lacks the bytes")):
        copy = json.loads(manifest)
        copy["entries"] = copy["entries"][:1]
        copy["entries"][0].update(change)
        done = archive(other, "import", "--json", packed(tmp_path / "bad", [(name, json.dumps(copy).encode()), *bytes_of.items()]))
        assert report(done, 3)["done"] == 0 and why in str(report(done, 3)["refused"]), f"{change}: {done.out}"
    copy = json.loads(manifest)
    copy["scopes"][0]["text"] += "more"
    mixed = report(archive(other, "import", "--json", packed(tmp_path / "bad", [(name, json.dumps(copy).encode()), *bytes_of.items()])), 3)
    assert any("id of a scope" in why for why in mixed["refused"])


def test_blobs_of_other_bytes_are_left_out(cluster, other, filled, tmp_path):
    members = unpacked(filled[2])
    blob, raw = members[1]
    assert hashlib.sha256(raw).hexdigest() == blob.removeprefix("blobs/")
    members[1] = (blob, bytes(len(raw)))
    taken = report(archive(other, "import", "--json", packed(tmp_path / "bad", members)), 3)
    assert taken["done"] > 10 and list(taken["refused"]) == ["the archive lacks the bytes, or they are damaged"]


def test_a_bomb_fills_nothing(cluster, other, filled, tmp_path):
    """Zeros that zstd makes a thousand times smaller, behind a name that no limit of an artefact allows."""
    members = unpacked(filled[2])
    info = tarfile.TarInfo("blobs/" + "0" * 64)
    info.size = 1 << 40
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        head = tarfile.TarInfo(members[0][0])
        head.size = len(members[0][1])
        tar.addfile(head, io.BytesIO(members[0][1]))
    raw = plain.getvalue()[:512 + (len(members[0][1]) + 511) // 512 * 512] + info.tobuf(tarfile.GNU_FORMAT) + bytes(64 << 20)
    (tmp_path / "bomb").write_bytes(subprocess.run(["zstd", "-cq"], input=raw, check=True, capture_output=True).stdout)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = archive(other, "import", tmp_path / "bomb", TMPDIR=str(scratch))
    assert done.code == 2 and "no blob" in done.err and list(scratch.iterdir()) == []


def test_an_end_by_signal_leaves_nothing(cluster, other, filled, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {"PATH": "/bin", "TMPDIR": str(scratch)}
    with subprocess.Popen([places.program(), "import", "--remote", other.redis.url, "-"], env=environment, stdin=subprocess.PIPE) as job:
        job.stdin.write(filled[2].read_bytes()[:1000])
        job.stdin.flush()
        wait_until(lambda: list(scratch.iterdir()), what="the temporary directory")
        job.send_signal(signal.SIGINT)
        assert job.wait(20) == -signal.SIGINT
    assert list(scratch.iterdir()) == []
    whole = f"{places.program()} export --remote {cluster.redis.url} - | head -c 10 > {tmp_path / 'head'}"
    run(["bash", "-c", whole], {**environment, "PATH": "/usr/bin:/bin"}, 60)
    assert list(scratch.iterdir()) == [] and (tmp_path / "head").stat().st_size == 10
