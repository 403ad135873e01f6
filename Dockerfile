# docker build -t eagergrad .                      for NVIDIA GPUs: run it with --gpus all
# docker build -t eagergrad:cpu --target cpu .     for machines without one
# CUDA=12 runs on every driver from 525 on, CUDA=13 needs 580 and drops Volta.
ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS build-cpu
RUN python3 -m venv /opt/venv
COPY . /src
RUN /opt/venv/bin/pip install --no-cache-dir --quiet '/src[cpu]'

FROM build-cpu AS build-cuda
ARG CUDA=12
RUN /opt/venv/bin/pip install --no-cache-dir --quiet "/src[cuda${CUDA}]"
# Kernels for all GPUs, in a folder that every user may read and only root may change.
ENV EAGERGRAD_CACHE=/opt/kernels
RUN mkdir /opt/kernels && /opt/venv/bin/eagergrad warmup

FROM ${BASE_IMAGE} AS base
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --create-home --uid 1000 eagergrad
USER eagergrad
WORKDIR /home/eagergrad
CMD ["eagergrad", "doctor"]

FROM base AS cpu
COPY --from=build-cpu /opt/venv /opt/venv

FROM base AS cuda
# A base that is not NVIDIA's must ask: by default the container gets nvidia-smi only.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV EAGERGRAD_CACHE=/opt/kernels
COPY --from=build-cuda /opt/kernels /opt/kernels
COPY --from=build-cuda /opt/venv /opt/venv
