"""Networks from their specs: sizes, names, normalisation, seeds, and models that other code builds."""

import subprocess
import sys

import pytest
import torch

from vauban import models
from vauban.errors import BadInput
from vauban.models.building import Foreign
from vauban.specs import Spec


def parameters(net: torch.nn.Module) -> int:
    return sum(tensor.numel() for tensor in net.parameters())


@pytest.mark.slow
def test_names_and_parameters_need_no_torch_and_a_model_no_compiler():
    code = (
        "import sys, vauban.models as m; m.describe(); m.canonical('cnn'); mnist = m.packaged('mnist'); "
        "print('torch' in sys.modules); m.load(mnist); print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "False\nTrue False\n"
    )


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ("cnn", 1 * 64 * 16 + 64 + 64 * 128 * 16 + 128 + 6272 * 500 + 500 + 500 * 100 + 100 + 100 * 10 + 10),
        ("cnn-small", 24 * 25 + 24 + 24 * 48 * 25 + 48 + 48 * 49 * 128 + 128 + 128 * 10 + 10),
        ("resnet18", 11_173_962),
        ("resnet50", 25_557_032),
        ("resnet110", 1_730_714),
        ("wideresnet40-2", 2_243_546),
        ("vit", 21_341_578),
        ("resnet50-cifar", 23_520_842),
        ("resnet18:width=32", 2_797_610),
        ("wideresnet-silu", 17_288_330),
        ("wong-mnist", 166_406),
        ("mlp:features=30,classes=2,width=16,depth=3", 30 * 16 + 16 + 2 * (16 * 16 + 16) + 16 * 2 + 2),
        ("dncnn", 558_400),
    ],
)
def test_networks_have_the_published_number_of_parameters(spec, count):
    with torch.device("meta"):
        assert parameters(models.build(spec)) == count


@pytest.mark.parametrize(
    ("spec", "shape", "classes"),
    [
        ("cnn", (1, 28, 28), 10),
        ("cnn:channels=2,classes=3,size=33", (2, 33, 33), 3),
        ("cnn:size=4", (1, 4, 4), 10),
        ("cnn-small", (1, 28, 28), 10),
        ("cnn-small:channels=6,classes=2,size=30", (6, 30, 30), 2),
        ("cnn-small:size=1", (1, 1, 1), 10),
        ("resnet18:channels=1,classes=4", (1, 28, 28), 4),
        ("resnet18:channels=6", (6, 32, 32), 10),
        ("resnet110", (3, 32, 32), 10),
        ("wideresnet40-2:classes=100", (3, 32, 32), 100),
        ("vit:patch=16,size=48,width=24,depth=2,heads=3,classes=5,channels=6", (6, 48, 48), 5),
        ("resnet50:classes=5", (3, 64, 64), 5),
        ("resnet50-cifar:width=8,channels=6", (6, 16, 16), 10),
        ("resnet18:width=8", (3, 15, 15), 10),
        ("wideresnet-silu:width=8,blocks=1,channels=4", (4, 17, 15), 10),
        ("wong-mnist:size=29,channels=2", (2, 29, 29), 10),
        ("mlp:features=5,classes=3,width=4,depth=1,mean=1/2/3/4/5,std=0.5", (5,), 3),
        ("mlp:features=12,mean=0.5", (3, 2, 2), 10),
        ("dncnn:depth=3,width=4 > cnn-small:channels=3,size=9", (3, 9, 9), 10),
        ("unet:depth=2,width=4 > cnn-small:channels=3,size=9", (3, 9, 9), 10),
    ],
)
def test_networks_turn_pictures_into_finite_scores(spec, shape, classes):
    net = models.build(spec, seed=0).eval()
    with torch.no_grad():
        scores = net(torch.rand(2, *shape))
    assert scores.shape == (2, classes)
    assert scores.isfinite().all()


@pytest.mark.parametrize(
    ("spec", "count", "shapes"),
    [
        (
            "resnet50",
            320,
            {
                "conv1.weight": (64, 3, 7, 7),
                "bn1.running_mean": (64,),
                "layer1.0.downsample.0.weight": (256, 64, 1, 1),
                "layer1.0.downsample.1.num_batches_tracked": (),
                "layer2.0.conv2.weight": (128, 128, 3, 3),
                "layer3.5.conv3.weight": (1024, 256, 1, 1),
                "layer4.2.bn3.bias": (2048,),
                "fc.weight": (1000, 2048),
            },
        ),
        (
            "resnet110",
            668,
            {
                "conv1.weight": (16, 3, 3, 3),
                "layer1.17.conv2.weight": (16, 16, 3, 3),
                "layer2.0.downsample.0.weight": (32, 16, 1, 1),
                "layer2.0.downsample.1.weight": (32,),
                "layer3.17.bn2.bias": (64,),
                "fc.weight": (10, 64),
            },
        ),
        ("resnet18", 122, {"layer4.0.downsample.0.weight": (512, 256, 1, 1), "fc.bias": (10,)}),
        ("resnet18:width=16", 122, {"layer4.0.downsample.0.weight": (128, 64, 1, 1), "fc.bias": (10,)}),
        ("resnet50-cifar", 320, {"conv1.weight": (64, 3, 3, 3), "layer3.5.conv3.weight": (1024, 256, 1, 1)}),
        ("wong-mnist", 8, {"0.weight": (16, 1, 4, 4), "2.bias": (32,), "5.weight": (100, 1568), "7.bias": (10,)}),
        ("dncnn", 93, {"dncnn.0.bias": (64,), "dncnn.3.running_var": (64,), "dncnn.47.weight": (3, 64, 3, 3)}),
        ("wideresnet40-2", 227, {"block1.layer.0.convShortcut.weight": (32, 16, 1, 1), "fc.weight": (10, 128)}),
    ],
)
def test_tensors_have_the_names_of_public_weights(spec, count, shapes):
    with torch.device("meta"):
        state = models.build(spec).state_dict()
    assert len(state) == count
    assert {name: tuple(state[name].shape) for name in shapes} == shapes


def test_patches_fill_the_picture_and_heads_the_width():
    with pytest.raises(BadInput, match="a patch that divides the size"):
        models.build("vit:size=30")
    with pytest.raises(BadInput, match="heads that divide the width"):
        models.build("vit:width=100")


def test_strides_shrink_the_picture_where_the_published_networks_do():
    net = models.build("resnet50:classes=2", seed=0).eval()
    sides = {}
    for name in ("conv1", "maxpool", "layer1", "layer2", "layer3", "layer4"):
        net.get_submodule(name).register_forward_hook(lambda m, i, out, name=name: sides.update({name: out.shape[-1]}))
    net(torch.rand(1, 3, 64, 64))
    assert sides == {"conv1": 32, "maxpool": 16, "layer1": 16, "layer2": 8, "layer3": 4, "layer4": 2}
    assert net.layer2[0].conv1.stride == (1, 1)
    assert net.layer2[0].conv2.stride == (2, 2)


def test_normalisation_is_the_first_layer_and_not_among_the_weights():
    plain = models.build("cnn-small:channels=3,size=8", seed=1)
    spec = "cnn-small:channels=3,size=8,mean=0.4914/0.4822/0.4465,std=0.25"
    shifted = models.build(spec, seed=1)
    x = torch.rand(2, 3, 8, 8)
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)
    assert torch.equal(shifted(x), plain((x - mean) / 0.25))
    assert not torch.allclose(shifted(x), plain(x))
    assert not any("mean" in name for name in shifted.state_dict())
    assert {name for name, _ in shifted.named_buffers()} == {"normalise.mean", "normalise.std"}
    only_std = models.build("cnn-small:channels=3,size=8,std=0.5", seed=1)
    assert torch.equal(only_std(x), plain(x / 0.5))


def test_seed_fixes_the_weights_and_leaves_the_generator_alone():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, again, other = (models.build("cnn-small:size=4", seed=s).state_dict() for s in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first["fc1.weight"], again["fc1.weight"])
    assert not torch.equal(first["fc1.weight"], other["fc1.weight"])
    models.build("cnn-small:size=4")
    assert not torch.equal(torch.random.get_rng_state(), before)


def test_specs_have_one_canonical_text():
    assert models.canonical("cnn") == "cnn:channels=1,classes=10,size=28"
    assert models.canonical("cnn:size=28,classes=10") == models.canonical(Spec("cnn", {"channels": "1"}))
    assert models.canonical("resnet18:std=.5,mean=0.10/0.2/0.3") == (
        "resnet18:channels=3,classes=10,mean=0.1/0.2/0.3,std=0.5"
    )
    assert models.canonical("a.b:make:x=1") == "a.b:make:x=1"


def test_the_usual_width_leaves_text_and_fingerprint_as_they_were():
    assert models.canonical("resnet18:width=64") == models.canonical("resnet18") == "resnet18:channels=3,classes=10"
    assert models.canonical("resnet18:width=32").endswith(",width=32")


def test_features_are_normalised_one_by_one():
    plain = models.build("mlp:features=3,classes=2", seed=1)
    shifted = models.build("mlp:features=3,classes=2,mean=0.1/0.2/0.3,std=2", seed=1)
    x = torch.rand(4, 3)
    assert torch.equal(shifted(x), plain((x - torch.tensor([0.1, 0.2, 0.3])) / 2))
    with pytest.raises(BadInput, match="takes 3 features; views have 4: give features=4"):
        plain(torch.rand(2, 4))
    with pytest.raises(
        BadInput, match="views have 6: the smoothing shows each feature twice. Ablation with null=mean keeps"
    ):
        plain(torch.rand(2, 6))


@pytest.mark.parametrize("spec", ["dncnn:depth=3,width=4,channels=2", "unet:depth=3,width=4,channels=2"])
def test_denoisers_return_the_picture_without_what_they_predict(spec):
    net = models.build(spec, seed=0).eval()
    x = torch.rand(2, 2, 9, 14)
    assert net(x).shape == x.shape
    last = list(net.modules())[-1] if spec.startswith("dncnn") else net.last
    for tensor in last.parameters():
        torch.nn.init.zeros_(tensor)
    assert torch.equal(net(x), x)


def test_new_blocks_are_their_shortcuts():
    net = models.build("wideresnet-silu:width=8,blocks=2", seed=0).eval()
    x = torch.rand(2, 8, 6, 6)
    assert torch.equal(net.blocks[1](x), x)


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((13,), "mlp:features=13,classes=3,width=256,depth=2"),
        ((2, 5), "mlp:features=10,classes=3,width=256,depth=2"),
        ((1, 28, 28), "cnn-small:channels=1,classes=3,size=28"),
        ((2, 28, 28), "cnn-small:channels=2,classes=3,size=28"),
        ((1, 20, 30), "resnet18:channels=1,classes=3"),
        ((6, 32, 32), "resnet18:channels=6,classes=3"),
    ],
)
def test_every_shape_of_views_has_a_default_network(shape, spec):
    assert models.default_for(shape, 3) == spec
    assert models.build(spec, seed=0).eval()(torch.rand(2, *shape)).shape == (2, 3)


def test_composed_models_and_features_are_fitted_to_views():
    fitted = models.fitting("dncnn:depth=3 > cnn", channels=1, classes=4, size=20)
    assert fitted == "dncnn:channels=1,depth=3,width=64 > cnn:channels=1,classes=4,size=20"
    assert models.fitting_views("mlp", (1, 4, 4), 2) == "mlp:features=16,classes=2,width=256,depth=2"
    for spec, shape, words in (
        ("resnet18", (7,), "takes pictures, and views have the shape"),
        ("cnn", (1, 4, 5), "takes square pictures, and views are 4x5"),
        ("mlp:features=3", (4,), "features=3 in mlp:features=3, where views have 4"),
    ):
        with pytest.raises(BadInput, match=words):
            models.fitting_views(spec, shape, 2)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("resnet19", "did you mean 'resnet18'"),
        ("/tmp/x/pol.py", "'/tmp/x/pol.py' is not a known model: code .* is written module:callable, pol:build for"),
        ("resnet18:size=32", "no parameter 'size'"),
        ("cnn:classes=0", "above zero"),
        ("cnn:classes=ten", "cannot be read"),
        ("cnn:size=3", "the least is 4"),
        ("resnet18:mean=0.1/0.2", "2 numbers for 3 channels"),
        ("cnn:std=0", "above zero"),
        ("cnn:mean=nan", "finite"),
        ("mlp:features=3,mean=0.1/0.2", "2 numbers for 3 features; give one, or one per feature"),
        ("dncnn:depth=1", "the least is 2"),
        ("a.safetensors+", "nothing on one side"),
        ("cnn > dncnn", "a denoiser .dncnn, unet. is needed there"),
        ("cnn + dncnn", "a classifier is needed there"),
        ("dncnn > dncnn > cnn", "more than one >"),
        ("ensemble:consensus=1+cnn+cnn+cnn", "give 2, how many are asked first"),
        ("ensemble+cnn", "two or more are needed"),
    ],
)
def test_wrong_specs_say_what_is_right(spec, words):
    with pytest.raises(BadInput, match=words):
        models.build(spec)


FACTORY = """
import torch
def make(width=2, scale=1.0, bias=True, kind="x"):
    net = torch.nn.Linear(width, 3, bias=bias)
    net.given = (width, scale, bias, kind)
    return net
def function():
    return lambda x: x * 2
def fails():
    raise TypeError("inside")
class Holder:
    make = make
text = "no model"
def number():
    return 3
"""


@pytest.fixture
def factory(tmp_path, monkeypatch):
    (tmp_path / "nets_of_mine.py").write_text(FACTORY)
    (tmp_path / "needs_more.py").write_text("import a_package_nobody_has")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    yield "nets_of_mine"
    sys.modules.pop("nets_of_mine", None)


def test_models_of_other_code_get_their_parameters_as_values(factory):
    assert models.build(f"{factory}:make").given == (2, 1.0, True, "x")
    given = models.build(f"{factory}:make:width=4,scale=1e-2,bias=false,kind=a/b:c").given
    assert given == (4, 0.01, False, "a/b:c")
    assert isinstance(given[0], int)
    assert models.build(Spec(f"{factory}:make", {"width": "7"})).given[0] == 7
    assert models.build(f"{factory}:Holder.make").given[0] == 2


def test_any_callable_becomes_a_module(factory):
    net = models.build(f"{factory}:function")
    assert isinstance(net, Foreign)
    assert torch.equal(net(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nowhere.at.all:make", "module nowhere, which is neither installed nor in"),
        ("nets_of_mine.sub:make", "needs the module nets_of_mine.sub"),
        ("nets_of_mine:mke", "has no 'mke'; it has make"),
        ("nets_of_mine:make:depth=3", "cannot be called with depth"),
        ("nets_of_mine:text", "is str; name a function"),
        ("nets_of_mine:number", "returned int; it must return a model"),
        ("needs_more:make", "a_package_nobody_has"),
        ("..x:make", "is not a module name"),
    ],
)
def test_what_cannot_be_imported_is_explained(factory, spec, words):
    with pytest.raises(BadInput, match=words):
        models.build(spec)


def test_errors_of_other_code_are_not_hidden(factory):
    with pytest.raises(TypeError, match="inside"):
        models.build(f"{factory}:fails")


def test_listing_can_be_built():
    rows = {row.name: row for row in models.describe()}
    others = {"package.module:callable", "FILE.onnx", "FILE.skops", "MODEL+MODEL+…", "DENOISER>MODEL"}
    assert set(rows) - set(models.ARCHITECTURES) == others
    with torch.device("meta"):
        for name in models.ARCHITECTURES:
            models.build(rows[name].written)
