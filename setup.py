"""The optional compiled extension; everything else is in setup.cfg."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "sampler.envs._preprocess",
            ["sampler/envs/_preprocess.c"],
            # Fused multiply-adds would round differently from OpenCV.
            extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"],
            optional=True,
        )
    ]
)
