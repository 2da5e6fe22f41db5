"""Generated images: as the spec writes them, the same in any batch, as hard as promised; and one's own instead."""

import functools
import hashlib
import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from ponder_ref.runtime.errors import Refused
from ponder_ref.sampling import threefry2x32
from tasks.pai import difficulty
from tasks.pai.data import Data
from tasks.pai.images import POOLS, Images
from tasks.pai.own import Own, first_not_finite


@pytest.fixture(scope="module")
def images() -> Images:
    return Images(0)


def as_the_spec_writes_it(seed: int, image: int) -> np.ndarray:
    """One image in float64, entry by entry from the prose of spec/annex/tasks.md."""

    def raw(index: int, count: int) -> np.ndarray:
        generator = np.random.Philox(key=np.array([seed, 16], np.uint64), counter=np.array([0, 0, 0, index], np.uint64))
        return np.frombuffer(generator.random_raw(count // 8 + 1).astype("<u8").tobytes(), np.uint8)

    @functools.cache
    def normal(byte: int) -> float:
        return round(16 * statistics.NormalDist().inv_cdf((int(byte) + 0.5) / 256)) / 16

    def table(value: float) -> float:
        return round(64 * value) / 64

    key = raw(0, 8)[:8].view("<u4")
    group_of: list[int] = []
    for number, word in enumerate(raw(1, 4000)[:4000].view("<u4")):
        size = 2 + int(word) * 15 // 2**32
        group_of += [number] * (size if 1000 - len(group_of) - size >= 2 else 1000 - len(group_of))
        if len(group_of) == 1000:
            break
    groups, c = group_of[-1] + 1, image % 1000
    pattern, own = raw(2, groups * 1000), raw(3, 10**6)
    moved, singles = raw(4, 32 * (groups + 1000)), raw(5, 2**20 + 999)
    words = [threefry2x32(key, (image, block)) for block in range(5)]
    random = np.array(words, "<u4").view(np.uint8).ravel()
    place = int(random[36:40].view("<u4")[0]) % 2**20
    out = []
    for j in range(1000):
        value = 0.75 * normal(pattern[group_of[c] * 1000 + j]) + 0.4 * normal(own[c * 1000 + j])
        value += (group_of[j] // 6 == group_of[c] // 6) + 3 * (group_of[j] == group_of[c]) + 6 * (j == c)
        total = table(value) + table(0.75 * normal(singles[place + j]))
        for i in range(32):
            start = i * (groups + 1000)
            both = normal(moved[start + group_of[j]]) + normal(moved[start + groups + j])
            total += normal(random[i]) * table(both / np.sqrt(2 * (i + 1)) / 2)
        out.append(total)
    mates = [j for j in range(1000) if group_of[j] == group_of[c]]
    step = 1 + int(random[34]) * (len(mates) - 1) // 256
    out[c] += 1.5 * normal(random[32])
    out[mates[(mates.index(c) + step) % len(mates)]] += 2 * abs(normal(random[33]))
    return np.array(out)


@pytest.mark.parametrize(("seed", "split", "pick"), [(0, "train", 12_345), (2**63 - 1, "test", 199_999)])
def test_images_are_those_of_the_spec(seed: int, split: str, pick: int):
    found = Images(seed).embeddings(split, np.array(pick))
    assert (found == as_the_spec_writes_it(seed, POOLS[split][0] + pick)).all()


def test_images_have_the_same_bits_everywhere(images: Images):
    some = images.embeddings("valid", np.arange(0, 100_000, 997))
    digest = hashlib.sha256(some.astype("<f4").tobytes()).hexdigest()
    assert digest[:16] == "997118ac4c0ec381"
    assert (some * 1024 % 1 == 0).all() and np.abs(some).max() < 64


def test_an_image_does_not_depend_on_its_batch(images: Images):
    picks = np.random.default_rng(0).integers(0, 10**6, (5, 61))
    together = images.embeddings("train", picks)
    assert together.shape == (5, 61, 1000) and together.dtype == np.float32
    for at in ((0, 0), (2, 30), (4, 60)):
        assert (images.embeddings("train", picks[at]) == together[at]).all()


def test_splits_share_classes_and_no_image(images: Images):
    ids = [set(range(first, first + size)) for first, size in POOLS.values()]
    assert [len(of) for of in ids] == [10**6, 10**5, 2 * 10**5]
    assert len(set.union(*ids)) == sum(map(len, ids))
    for split in POOLS:
        counts = np.bincount(images.labels(split, np.arange(images.size(split))))
        assert (counts == images.size(split) // 1000).all() and len(counts) == 1000
    first = [images.embeddings(split, np.array([0]))[0] for split in POOLS]
    assert all(images.labels(split, np.array(0)) == 0 for split in POOLS)
    assert (first[0] != first[1]).mean() > 0.9 and (first[0] != first[2]).mean() > 0.9


def test_seeds_give_other_images(images: Images):
    assert (Images(1).embeddings("train", np.arange(3)) != images.embeddings("train", np.arange(3))).mean() > 0.9


def test_groups_cover_all_classes(images: Images):
    assert images.count.sum() == 1000 and images.count.min() >= 2 and (np.diff(images.group) >= 0).all()
    classes = np.repeat(np.arange(1000), 256)
    mates = images._mates(classes, np.tile(np.arange(256), 1000).astype(np.uint8))
    assert (images.group[mates] == images.group[classes]).all() and (mates != classes).all()


def test_the_difficulty_is_what_was_fixed(capsys: pytest.CaptureFixture):
    assert difficulty.main(["--seed", "0", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["linear_probe"] >= 0.995
    assert found["memories_with_two_of_a_class"] >= 0.5
    alike = found["likeness"]
    assert alike["same"][0] > alike["confusable"][0] + 0.03 > alike["other"][0] + 0.2
    assert 0.2 < alike["same_below_confusable"] < 0.45 and 0.005 < alike["same_below_other"] < 0.05
    nearest = found["lookups"]["nearest row"]
    assert nearest["A-B"] >= 0.999 and nearest["B-C"] >= 0.999 and 0.4 < nearest["A-C"] < 0.55
    assert min(found["lookups"]["following images"].values()) == 1.0
    assert 0.9 < found["lookups"]["following classes"]["A-C"] < 1.0
    text = difficulty.report(found)
    assert f"{found['linear_probe']:.2%}" in text and "A-C" in text


@pytest.mark.parametrize("flags", [["--seed", "-1"], ["--seed", "x"], ["--length", "6"], ["--sed", "1"]])
def test_wrong_flags_get_one_sentence(flags: list[str], capsys: pytest.CaptureFixture):
    assert difficulty.main(flags) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and flags[0] in error


def own_files(folder: Path, embeddings, labels) -> tuple[Path, Path]:
    paths = folder / "embeddings.npy", folder / "labels.npy"
    for path, array in zip(paths, (embeddings, labels), strict=True):
        np.save(path, array)
    return paths


def test_own_images_are_split_within_each_class(tmp_path: Path):
    labels = np.random.default_rng(0).permutation(np.repeat([7, -3, 100], [26, 130, 500]))
    embeddings = np.arange(len(labels), dtype=np.float64)[:, None] + np.zeros(5)
    own = Own(*own_files(tmp_path, embeddings, labels))
    assert (own.width, own.classes) == (5, 3)
    places = {split: own.embeddings(split, np.arange(own.size(split)))[:, 0].astype(int) for split in POOLS}
    assert sorted(np.concatenate(list(places.values()))) == list(range(len(labels)))
    for split, share in (("train", 10 / 13), ("valid", 1 / 13), ("test", 2 / 13)):
        assert (np.array([-3, 7, 100])[own.labels(split, np.arange(own.size(split)))] == labels[places[split]]).all()
        for label, count in ((-3, 130), (7, 26), (100, 500)):
            assert abs((labels[places[split]] == label).sum() - count * share) <= 2
    batch = Data(own, seed=1, batch_size=4, target="class").batches("test", [0])
    assert batch.inputs["images"].shape[-2:] == (48, 5) and batch.inputs["images"].dtype == np.float32
    match = np.take_along_axis(batch.inputs["query"], 1 + Data(own, 1, 4).batches("test", [0]).targets[..., None], -1)
    image = np.take_along_axis(batch.inputs["images"][..., 0], match, -1)[..., 0].astype(int)
    assert (np.array([-3, 7, 100])[batch.targets] == labels[image]).all()


def test_own_images_are_known_by_every_number_and_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tasks.pai.own.BLOCK", 64)
    labels, embeddings = np.repeat([3, 5], 50), np.arange(200.0).reshape(100, 2)
    known = Own(*own_files(tmp_path, embeddings, labels)).checksum()
    assert known == Own(*own_files(tmp_path, embeddings, labels)).checksum()
    embeddings[99, 1] += 1
    assert known != Own(*own_files(tmp_path, embeddings, labels)).checksum()
    embeddings[99, 1] -= 1
    assert known != Own(*own_files(tmp_path, embeddings, labels + 1)).checksum()


@pytest.mark.parametrize(
    ("embeddings", "labels", "sentence"),
    [
        (np.zeros((9, 2)), np.repeat([0, 1], [7, 2]), "the class 1 has 2 images, at least 3 are needed"),
        (np.zeros((9, 2)), np.zeros(8, int), "has 8 entries for 9 images"),
        (np.zeros((9, 2), int), np.zeros(9, int), r"must hold numbers \[images, width\], got int64 \[9, 2\]"),
        (np.zeros((9, 2)), np.zeros(9), r"must hold integers \[images\], got float64 \[9\]"),
        (np.zeros((9, 2)), np.array([None] * 9), r"must hold integers \[images\], got object \[9\]"),
        (np.zeros((0, 2)), np.zeros(0, int), "holds no numbers"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, embeddings, labels, sentence: str):
    with pytest.raises(Refused, match=sentence):
        Own(*own_files(tmp_path, embeddings, labels))


def test_files_that_are_no_arrays(tmp_path: Path):
    embeddings, labels = own_files(tmp_path, np.zeros((9, 2)), np.zeros(9, int))
    with pytest.raises(Refused, match=r"--labels: cannot read .*no such file"):
        Own(embeddings, tmp_path / "absent.npy")
    embeddings.write_bytes(embeddings.read_bytes()[:-8])
    with pytest.raises(Refused, match=r"--embeddings: .* is not a whole .npy file"):
        Own(embeddings, labels)
    embeddings.write_bytes(embeddings.read_bytes().replace(b"(9, 2)", b"(9, 2 "))
    with pytest.raises(Refused, match=r"--embeddings: .* is not a whole .npy file"):
        Own(embeddings, labels)
    np.savez(tmp_path / "archive.npz", np.zeros(3))
    with pytest.raises(Refused, match=r"is not a \.npy file"):
        Own(tmp_path / "archive.npz", labels)


def test_numbers_are_looked_at_in_blocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tasks.pai.own.BLOCK", 6)
    array = np.zeros((8, 3))
    assert first_not_finite(array) is None
    for image in range(8):
        array[:] = 0
        array[image:, 2] = np.nan
        assert first_not_finite(array) == image
    assert first_not_finite(np.zeros((2, 7), np.float16)) is None


def test_own_images_must_be_finite_and_enough(tmp_path: Path):
    for image, number in ((0, np.nan), (899, -np.inf), (450, 1e39)):  # the last is finite as a double only
        embeddings = np.zeros((900, 2))
        embeddings[image:, 1] = number
        with pytest.raises(Refused, match=f"--embeddings .*: image {image} holds a number that is not finite"):
            Own(*own_files(tmp_path, embeddings, np.zeros(900, int)))
    few = Own(*own_files(tmp_path, np.zeros((100, 2)), np.zeros(100, int)))
    with pytest.raises(Refused, match="the valid split has 7 images, a memory of sequences of 3 needs 48"):
        Data(few, seed=0, batch_size=2)
