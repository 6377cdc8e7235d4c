"""The dashboard's files, as they are served."""

import re

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from kreplica.admin.http.api import Call
from kreplica.admin.http.problems import Problem
from kreplica.admin.resources.dashboard import Dashboard, read_pages


class SynchronousOffload:
    """An ``Offload`` that runs functions synchronously, and counts them."""

    def __init__(self):
        self.runs = 0

    def run(self, function, *args, **kwargs):
        self.runs += 1
        return succeed(function(*args, **kwargs))

    def stop(self):
        """Do nothing."""


class Files(SynchronousTestCase):
    """Requests for ``/`` and ``/dashboard/...``."""

    def setUp(self):
        self.offload = SynchronousOffload()
        self.dashboard = Dashboard(self.offload)

    def request(self, name):
        return Deferred.fromCoroutine(self.dashboard.file(Call(path={"file": name})))

    def get(self, name):
        return self.successResultOf(self.request(name))

    def test_the_page_and_its_parts_have_types_and_tags(self):
        """Files have the content types that browsers require, and an ETag for caching."""
        page = self.get("index.html")
        module = self.get("parts/tables.js")
        assert page.content_type == "text/html; charset=utf-8"
        assert module.content_type == "text/javascript; charset=utf-8"
        assert page.etag != module.etag
        assert self.offload.runs == 1, "files are read once"

    def test_only_files_of_the_dashboard(self):
        """No path leads outside the directory or to Python files."""
        for name in ("../api.py", "__init__.py", "pages", "parts/../index.html", "nothing.js", "/etc/passwd"):
            assert self.failureResultOf(self.request(name), Problem).value.status == 404


def test_nothing_is_loaded_from_other_hosts():
    """No file refers to another host or has inline scripts or styles, which the page's policy forbids."""
    for name, page in read_pages().items():
        text = page.content.decode()
        hosts = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)) - {"http://www.w3.org"}
        assert not hosts, name
        assert " style=" not in text, name
        assert not re.search(r"<script(?![^>]*src=)", text), name
        assert not re.search(r"\.(innerHTML|outerHTML)|insertAdjacentHTML|document\.write|eval\(", text), name


def test_every_import_has_a_target():
    """Each import names an existing file and names that it exports."""
    pages = {name: page.content.decode() for name, page in read_pages().items() if name.endswith(".js")}
    for name, text in pages.items():
        folder = name.rpartition("/")[0]
        for names, target in re.findall(r'^import (.*?) from "(.*?)";', text, re.MULTILINE):
            path = resolve_path(folder, target)
            assert path in pages, f"{name} imports {target}"
            for imported in re.findall(r"\w+", names) if names.startswith("{") else ():
                exported = rf"^export (?:async )?(?:function\*?|const|let|class) {imported}\b"
                assert re.search(exported, pages[path], re.MULTILINE), f"{name} imports {imported} from {target}"


def test_modules_are_small_enough_to_read():
    """Each module has less than 300 lines."""
    for name, page in read_pages().items():
        assert page.content.count(b"\n") < 300, name


def resolve_path(folder, target):
    parts = [part for part in folder.split("/") if part]
    for step in target.split("/"):
        if step == "..":
            parts.pop()
        elif step != ".":
            parts.append(step)
    return "/".join(parts)
