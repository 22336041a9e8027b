"""CNN-F, the text network, and weights from MatConvNet's file."""

import contextlib

import numpy as np
import pytest
import torch

from wayfare.core.errors import ConfigError, DataError
from wayfare.hashing import nets, vggf
from wayfare.hashing.nets import CNNF, Encoders, Layers, across_channels, signs

SMALL = {"conv1": (3, 2, 3, 4), "conv2": (2, 2, 4, 4), "conv3": (2, 2, 4, 4), "fc7": (1, 1, 4, 5)}


@pytest.fixture(scope="module")
def cnnf():
    torch.manual_seed(0)
    return CNNF(32)


def test_numbers_of_parameters(cnnf):
    image, text = cnnf, Layers(1386, 8192, 32)
    assert [sum(p.numel() for p in net.parameters()) for net in (image, text)] == [56_868_640, 11_624_480]
    assert "mean" not in image.state_dict()  # the same everywhere: it does not travel


def test_layers_start_small_and_may_be_one():
    torch.manual_seed(0)
    net = Layers(300, 200, 32)
    for p in net.parameters():
        assert 0.007 < float(p.detach().std()) < 0.013
    assert [name for name, _ in Layers(5, 0, 2).named_parameters()] == ["hash.weight", "hash.bias"]
    x = torch.randn(1, 300)
    by_hand = (x @ net.hidden.weight.T + net.hidden.bias).clamp(min=0) @ net.hash.weight.T + net.hash.bias
    assert torch.allclose(net(x), by_hand) and net(x).shape == (1, 32)


def test_a_code_is_always_binary():
    assert signs(torch.tensor([0.0, -0.0, 3.0, -1e-30])).tolist() == [1, 1, 1, -1]


def test_encoders_pass_raw_outputs_on():
    net = Encoders(Layers(3, 0, 4), Layers(6, 5, 4), 4)
    raw = net.encode("text", torch.ones(2, 6))
    assert raw.shape == (2, 4) and net.enhance("text", raw) is raw
    assert net.encode("image", torch.ones(1, 3)).shape == (1, 4)


def test_normalisation_over_channels():
    channels = torch.arange(1.0, 7)[None, :, None, None] * 100
    authors, ports = across_channels("authors"), across_channels("ports")
    # the third channel, 300: squares of 100 .. 500 make 550,000; 300 / (2 + 55)^0.75
    assert float(authors(channels)[0, 2]) == pytest.approx(300 / 57**0.75, rel=1e-5)
    # as ported: half of 1e-4 on the squares of two channels, 200 and 300
    assert float(ports(channels)[0, 2]) == pytest.approx(300 / (2 + 0.5e-4 * 130_000) ** 0.75, rel=1e-5)


@torch.no_grad()
def test_weights_of_cnnf(cnnf, monkeypatch, tmp_path):
    """All layers but the hash layer are taken; the mean image is subtracted from pixels."""
    net = cnnf
    before = net.hash.weight.clone()
    weights = {name: np.zeros(p.shape, np.float32) for name, p in net.named_parameters() if "hash" not in name}
    mean = np.random.default_rng(0).uniform(0, 255, (3, 224, 224)).astype(np.float32)
    monkeypatch.setattr(nets, "read", lambda file: dict(weights, mean=mean))
    net.load(tmp_path / "vgg.mat")
    assert torch.equal(net.hash.weight, before) and float(net.conv4.weight.abs().sum()) == 0
    seen = []
    net.conv1.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    out = net(torch.from_numpy(mean)[None] + 1)
    assert torch.allclose(seen[0], torch.ones(1, 3, 224, 224), atol=1e-4)
    assert torch.allclose(out[0], net.hash.bias)  # nothing but zeros before it
    assert net(torch.zeros(1, 3, 40, 60)).shape == (1, 32)  # of any size
    weights["conv2.bias"] = np.zeros(3, np.float32)
    with pytest.raises(ConfigError, match=r"conv2.bias is \(3,\), expected \(256,\)"):
        net.load(tmp_path / "vgg.mat")


def _mat(path, layers, packed=True, mean=True):
    """What MatConvNet writes: a row of structs in cells, each with a cell of kernel and bias, and other fields."""
    from scipy.io import savemat

    rng, cells, truth = np.random.default_rng(0), np.empty((1, 2 * len(layers)), object), {}
    for number, (name, shape) in enumerate(layers.items()):
        weights = np.empty((1, 2), object)
        weights[0, 0] = truth[name] = rng.normal(size=shape).astype(np.float32)
        weights[0, 1] = truth[name + "b"] = rng.normal(size=(1, shape[3])).astype(np.float32)
        left = rng.normal(size=shape).astype(np.float32)  # must not be taken for the next layer
        cells[0, 2 * number] = {"weights": weights, "pad": np.zeros((1, 4)), "type": "conv", "momentum": left}
        cells[0, 2 * number + 1] = {"type": "relu", "name": "r" + name}
    truth["mean"] = rng.uniform(0, 255, (224, 224, 3)).astype(np.float32)
    about = {"averageImage": truth["mean"]} if mean else {"keepAspect": 1}
    savemat(path, {"layers": cells, "meta": {"normalization": about}}, do_compression=packed)
    return truth


@pytest.mark.parametrize("packed", [True, False])
def test_kernels_are_turned_to_out_in_height_width(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(vggf, "LAYERS", SMALL)
    truth = _mat(tmp_path / "a.mat", SMALL, packed)
    found = vggf.read(tmp_path / "a.mat")
    assert sorted(found) == sorted(["mean", *(f"{n}.{p}" for n in SMALL for p in ("weight", "bias"))])
    assert found["conv1.weight"].shape == (4, 3, 3, 2)
    assert found["conv1.weight"][3, 1, 2, 0] == truth["conv1"][2, 0, 1, 3]
    assert np.array_equal(found["conv3.weight"], truth["conv3"].transpose(3, 2, 0, 1))
    assert np.array_equal(found["conv3.bias"], truth["conv3b"][0])
    assert np.array_equal(found["fc7.weight"], truth["fc7"][0, 0].T)
    assert found["mean"][2, 5, 7] == truth["mean"][5, 7, 2]


def test_broken_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(vggf, "LAYERS", SMALL)
    file = tmp_path / "a.mat"
    _mat(file, SMALL, packed=False)
    whole = file.read_bytes()
    for end in (0, 100, 130, 500, len(whole) - 9):
        file.write_bytes(whole[:end])
        with pytest.raises(DataError):
            vggf.read(file)
    for at in range(130, 1500, 61):  # whatever happens to the structure, it is a DataError or nothing
        file.write_bytes(whole[:at] + b"\xff\x7f" + whole[at + 2 :])
        with contextlib.suppress(DataError):
            vggf.read(file)
    _mat(file, {"conv1": SMALL["conv1"]})
    with pytest.raises(DataError, match=r"no conv2\.weight"):
        vggf.read(file)
    _mat(file, SMALL, mean=False)
    with pytest.raises(DataError, match="no mean"):
        vggf.read(file)


@pytest.mark.parametrize("words", [2, 9], ids=["few words", "many words"])
def test_empty_columns_of_bags_change_nothing(words):
    """The same numbers and gradients as the plain layers, whether or not columns are left out."""
    torch.manual_seed(0)
    net, bags = Layers(12, 5, 3), torch.zeros(4, 12)
    bags[:, torch.randperm(12)[:words]] = 1.0
    plain = net.hash(net.hidden(bags).relu())
    wanted = torch.autograd.grad(plain.square().sum(), list(net.parameters()))
    said = net(bags)
    torch.testing.assert_close(said, plain)
    for mine, theirs in zip(torch.autograd.grad(said.square().sum(), list(net.parameters())), wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert net(torch.zeros(2, 12)).shape == (2, 3)  # texts without a known word
