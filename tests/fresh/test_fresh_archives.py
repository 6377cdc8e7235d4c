"""Archives are unpacked equally with and without ``tarfile``'s filters (Python 3.11.0 to 3.11.3 has none)."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import archives
import pytest
from archives import UnsafeArchive, unpack


@pytest.fixture(params=["filters", "no filters"])
def rejections(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[type[Exception], ...]:
    """The error types of rejected members; each test runs with this Python's filters, and without filters."""
    if request.param == "no filters":
        monkeypatch.setattr(archives, "HAS_FILTERS", False)
    return (UnsafeArchive, tarfile.FilterError) if archives.HAS_FILTERS else (UnsafeArchive,)


def archive_of(*members: tarfile.TarInfo) -> tarfile.TarFile:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for member in members:
            member.size = 4 if member.isreg() else 0
            archive.addfile(member, io.BytesIO(b"text") if member.isreg() else None)
    return tarfile.open(fileobj=io.BytesIO(file.getvalue()))


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode, entry.uid = kind, target, 0o4777, 4321
    return entry


def test_files_and_directories(rejections: tuple[type[Exception], ...], tmp_path: Path) -> None:
    """Files are written with their contents, without the archive's owner, set-user-ID bit or write permission."""
    unpack(archive_of(member("a", tarfile.DIRTYPE), member("a/b"), member("c")), tmp_path)
    for name in ("a/b", "c"):
        assert (tmp_path / name).read_bytes() == b"text"
        found = (tmp_path / name).stat()
        assert found.st_mode & 0o7022 == 0
        assert found.st_uid == tmp_path.stat().st_uid


def test_only_selected_members_are_unpacked(rejections: tuple[type[Exception], ...], tmp_path: Path) -> None:
    """Members that are not in the list are omitted."""
    archive = archive_of(member("a"), member("b"))
    unpack(archive, tmp_path, [each for each in archive.getmembers() if each.name == "b"])
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize(
    "hostile",
    [
        member("../outside"),
        member("a/../../outside"),
        member("link", tarfile.SYMTYPE, "../outside"),
        member("link", tarfile.LNKTYPE, "../outside"),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda hostile: f"{hostile.name} {hostile.type.decode()}",
)
def test_no_file_is_written_outside_of_the_directory(
    hostile: tarfile.TarInfo, rejections: tuple[type[Exception], ...], tmp_path: Path
) -> None:
    """A path or link that leaves the directory is rejected, and so is a device."""
    directory = tmp_path / "inside"
    directory.mkdir()
    with pytest.raises(rejections):
        unpack(archive_of(hostile), directory)
    assert list(tmp_path.iterdir()) == [directory]


def test_an_absolute_path_stays_in_the_directory(rejections: tuple[type[Exception], ...], tmp_path: Path) -> None:
    """The filters remove a leading slash; without filters, the member is rejected."""
    outside, directory = tmp_path / "outside", tmp_path / "inside"
    directory.mkdir()
    if archives.HAS_FILTERS:
        unpack(archive_of(member(str(outside))), directory)
    else:
        with pytest.raises(UnsafeArchive):
            unpack(archive_of(member(str(outside))), directory)
    assert not outside.exists()
