// Under these names fused kernels are seen in a StepTrace, once each time they run.
#pragma once

namespace trainopt {

inline constexpr const char *kNormLabel = "trainopt::fused_batch_norm",
                            *kNormGradientLabel = "trainopt::fused_batch_norm_backward";
inline constexpr const char *kAveragePoolLabel = "trainopt::fused_average_pool",
                            *kAveragePoolGradientLabel = "trainopt::fused_average_pool_backward";
inline constexpr const char *kCrossEntropyLabel = "trainopt::fused_cross_entropy",
                            *kCrossEntropyGradientLabel = "trainopt::fused_cross_entropy_backward";

}  // namespace trainopt
