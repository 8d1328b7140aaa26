# specchat with CUDA. Built from the repository's top level:
#   docker build -f scripts/packaging/cuda.Dockerfile -t specchat-cuda .
#   docker run --rm -it --gpus all -v specchat:/data specchat-cuda
# Building CUDA's kernels for all GPUs takes hours of processor time: CMAKE_ARGS chooses some, as in
#   --build-arg CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=89
FROM nvidia/cuda:12.8.1-devel-ubuntu24.04 AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ python3-venv
WORKDIR /source
COPY scripts scripts
COPY specchat specchat
COPY pyproject.toml models.toml README.md LICENSE ./
ARG CMAKE_ARGS=
RUN sh scripts/packaging/build_in_container.sh cuda --out /wheels
RUN build/packaging/bin/python -m hatchling build -t wheel -d /wheels
RUN python3 -m venv /specchat && /specchat/bin/pip install --no-cache-dir --find-links /wheels /wheels/specchat-*.whl

FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04
RUN apt-get update && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* && useradd --create-home --home-dir /data specchat
COPY --from=build /specchat /specchat
USER specchat
WORKDIR /data
VOLUME /data
ENTRYPOINT ["/specchat/bin/specchat"]
