# syntax=docker/dockerfile:1

# One image with the four programs and duectl; docker-compose.yml names the one to run.
#
#   tools ──▶ plan: which dependencies            changes with any file, costs a second
#     └─────▶ build: dependencies, then our code  the dependencies' layer changes with Cargo.lock alone
#                └─▶ the image: Debian, libssl, five programs, no root

FROM rust:1.95.0-slim-trixie AS tools
RUN apt-get update \
 && apt-get install --no-install-recommends --yes \
      gcc libc6-dev g++ make cmake perl pkg-config libssl-dev zlib1g-dev libcurl4-openssl-dev \
 && rm -rf /var/lib/apt/lists/* \
 && cargo install --quiet --locked --version 0.1.78 cargo-chef
WORKDIR /src

FROM tools AS plan
COPY . .
RUN cargo chef prepare --recipe-path /recipe.json

FROM tools AS build
# Names of functions stay in a backtrace; lines would make the image five times as large.
ENV CARGO_PROFILE_DIST_DEBUG=none CARGO_PROFILE_DIST_STRIP=debuginfo
COPY --from=plan /recipe.json /recipe.json
RUN cargo chef cook --profile dist --locked --recipe-path /recipe.json \
      --package ingest --package scanner --package dispatcher --package compensator --package duectl
COPY . .
RUN cargo build --profile dist --locked --bins \
      --package ingest --package scanner --package dispatcher --package compensator --package duectl \
 && install --directory /out \
 && install --target-directory=/out \
      target/dist/duestream-ingest target/dist/duestream-scanner target/dist/duestream-dispatcher \
      target/dist/duestream-compensator target/dist/duectl

FROM debian:trixie-slim
RUN apt-get update \
 && apt-get install --no-install-recommends --yes ca-certificates libssl3t64 zlib1g \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ /usr/local/bin/
USER 10001:10001
CMD ["duectl", "--help"]
