"""Numbers given to flags, as people write them."""

import pytest

from cli.flag_values import whole_number
from cli.options import parse_options
from sampler.errors import ConfigError


def options(*arguments):
    return parse_options(["--env", "CartPole-v1", "--serial", *arguments])[0]


@pytest.mark.parametrize("text", ["100000", "1e5", "1E5", "1e+5", "100_000", "0.1e6"])
def test_whole_numbers(text):
    assert whole_number(text) == 100_000
    assert type(whole_number(text)) is int


@pytest.mark.parametrize("text", ["1.5", "15e-1", "many", "", "inf", "nan", "1e999999999"])
def test_what_is_not_a_whole_number(text):
    with pytest.raises(ValueError, match="is not a whole number, such as 100000 or 1e5"):
        whole_number(text)


@pytest.mark.parametrize("arguments", [["--total-steps", "1e5"], ["--total_steps=1e5"]])
def test_steps_with_an_exponent(arguments):
    assert options(*arguments).training.total_steps == 100_000


@pytest.mark.parametrize("sizes", [["64,32"], ["64", "32"]])
def test_layers_with_commas_or_spaces(sizes):
    assert options("--model.hidden", *sizes).model.hidden == (64, 32)
    assert options("--model.hidden", *sizes, "--total-steps", "5").model.hidden == (64, 32)


def test_a_layer_without_a_size_is_an_error():
    with pytest.raises(ConfigError, match=r"--model\.hidden"):
        options("--model.hidden", "64,", "32")


def test_a_text_that_looks_like_a_number_stays():
    assert options("--run-dir", "1e5").logging.run_dir == "1e5"


def test_a_fraction_of_a_step_is_one_clear_error():
    with pytest.raises(ConfigError) as raised:
        options("--total-steps", "1.5")
    assert str(raised.value) == (
        "--total-steps: '1.5' is not a whole number, such as 100000 or 1e5"
    )
