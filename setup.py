"""The optional compiled extensions; everything else is in setup.cfg."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "sampler.envs._preprocess",
            ["sampler/envs/_preprocess.c"],
            # Fused multiply-adds would round differently from OpenCV.
            extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"],
            optional=True,
        ),
        Extension(
            "sampler.shm._ordering",
            ["sampler/shm/_ordering.c"],
            extra_compile_args=["-std=c11", "-O3", "-Wall", "-Wextra"],
            optional=True,
        ),
    ]
)
