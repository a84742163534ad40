# trainopt in a container, set up by the same script as everywhere else.
#
#   docker build -t trainopt .
#   docker run --rm --gpus all -v "$PWD:/here" -w /here trainopt run configs/quickstart.yaml
FROM debian:12
ENV TRAINOPT_CACHE=/opt/trainopt/cache
WORKDIR /opt/trainopt/source
# Copied first, so that a change to the sources does not reinstall the dependencies.
COPY scripts/setup scripts/
COPY scripts/requirements/build.txt scripts/requirements/cuda.txt scripts/requirements/parquet.txt scripts/requirements/
RUN scripts/setup --cuda
COPY . .
RUN scripts/build trainopt && cmake --install build --prefix /usr/local
ENTRYPOINT ["trainopt"]
