// cuDNN times its algorithms for each new shape and keeps the fastest.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::cudnn_benchmark {

Outcome apply(Plan& plan);

}  // namespace trainopt::cudnn_benchmark
