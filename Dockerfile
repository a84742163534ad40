# trainopt in a container, made by the same set-up as everywhere else.
#
#   docker build -t trainopt .
#   docker run --rm --gpus all -v "$PWD:/here" -w /here trainopt run configs/quickstart.yaml
FROM debian:12
ENV TRAINOPT_CACHE=/opt/trainopt/cache
WORKDIR /opt/trainopt/source
# On their own, so that a change of the sources does not install everything again.
COPY scripts/setup scripts/
COPY scripts/requirements/build.txt scripts/requirements/
RUN scripts/setup
COPY . .
RUN scripts/build trainopt && cmake --install build --prefix /usr/local
ENTRYPOINT ["trainopt"]
