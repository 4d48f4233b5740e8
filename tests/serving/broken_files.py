# SPDX-License-Identifier: Apache-2.0
"""Files below VLLM_CACHE_ROOT that are not whole, or not where vLLM has them today, made from what real vLLM wrote."""
import hashlib

from serving_pods import LONG

CUT = 4096 if LONG else 65536
MODEL = "torch_compile_cache/torch_aot_compile/{}/rank_0_0/model"
BACKBONE = "torch_compile_cache/{}/rank_0_0/backbone/"
INDEX, ARTIFACT = "vllm_compile_cache.py", "artifact_compile_range_1_128_subgraph_0"

BROKEN = ("cut", "longer", "in place", "without an artifact", "with an empty artifact", "without artifacts", "cut index", "no literal", "elsewhere",
          "a directory", "no info")
# What users reported (test_incidents.py): a model of 0 bytes, and two of which an operator takes one from the cluster.
REPORTED = ("empty first", "wrong graph", "right graph")


def name_of(seed, digits):
    return hashlib.sha256(seed.encode()).hexdigest()[:digits]


class Orders:
    """Files for Pod.look to write: [(path, bytes, protocol)], by what is wrong with them."""

    def __init__(self, first):
        self.models = sorted({path.read_bytes() for path in first.files(MODEL.format("*"))}, key=len)
        indexes = first.files(BACKBONE.format("*") + INDEX)
        self._index = next(index for index in indexes if (index.parent / ARTIFACT).is_file())  # those of unpacked artifacts are directories
        self._artifacts = {path.name: path.read_bytes() for path in self._index.parent.glob("artifact_*")}
        assert len(self._artifacts) == 3, self._index
        self._model_info = first.files("modelinfos/*.json")[0].read_bytes()
        self.all, self.by_kind = [], {}

    def _add(self, kind, path, content, protocol):
        self.all.append((path, content, protocol))
        self.by_kind.setdefault(kind, set()).add(path)

    def model(self, kind, content, protocol="model", path=None):
        """Under a hash of its own."""
        self._add(kind, path or MODEL.format(name_of(f"{kind} {len(self.all)}", 64)), content, protocol)

    def index(self, kind, drop=None, change=lambda text: text, empty=None, artifacts=True):
        """An index and its artifacts under a hash of their own; without the artifact `drop`, and `empty` without content."""
        base = BACKBONE.format(name_of(f"{kind} {len(self.all)}", 10))
        if artifacts:
            for number, (name, content) in enumerate(sorted(self._artifacts.items())):
                if number != drop:
                    self._add(kind, base + name, b"" if number == empty else content, "artifact")
        text = self._index.read_bytes().replace(self._index.parts[-4].encode(), base.split("/")[1].encode())
        self._add(kind, base + INDEX, change(text), "in place")

    def model_info(self, kind, content):
        self._add(kind, f"modelinfos/vllm-{name_of(f'{kind} {len(self.all)}', 8)}.json", content, "artifact")

    def whole(self):
        self.model("whole", self.models[-1])
        self.index("whole")
        self._add("whole", "modelinfos/vllm-model_executor-models-other-Other.json", self._model_info, "artifact")

    def broken(self):
        largest = self.models[-1]
        for size in range(0, len(largest), CUT):
            self.model("cut", largest[:size])
        self.model("cut", largest[:-1])
        self.model("longer", largest + b"x")
        self.model("in place", largest, "in place", f"torch_aot_compile/{name_of('in place', 64)}/rank_0_0/model")
        for number in range(3):
            self.index("without an artifact", drop=number)
            self.index("with an empty artifact", empty=number)
        self.index("without artifacts", artifacts=False)
        for size in range(0, 1000, 100):
            self.index("cut index", change=lambda text, size=size: text[:size])
        self.index("no literal", change=lambda text: text.replace(b"(1, 128)", b"range(1, 128)"))
        self.index("elsewhere", change=lambda text: text.replace(b"'artifact_compile", b"'../../artifact_compile"))
        self.model("a directory", b"text", "artifact", MODEL.format(name_of("a directory", 64)) + "/file")
        self.model_info("no info", b"")
        self.model_info("no info", self._model_info[:-1])

    def reported(self):
        for kind in REPORTED:
            self.model(kind, b"" if kind == "empty first" else self.models[-1])

    def only(self, kind):
        """The path of the one file of this kind."""
        [path] = self.by_kind[kind]
        return path
