#include "trace/kernels.h"

#include "events.h"
#include "support/catch.h"

namespace trainopt::trace {

TEST_CASE("the table of kernels", "[trace]") {
  // gemm: 10 µs at 50 %, 30 µs at 90 %: (500 + 2700) / 40 = 80 %. Blocks 2 · 3 · 1 and 4: 5 on average.
  const auto rank = analysed({
      kernel("gemm", 0, 10, R"("grid": [2, 3, 1], "est. achieved occupancy %": 50)"),
      kernel("gemm", 20, 30, R"("grid": [4, 1, 1], "est. achieved occupancy %": 90.0)"),
      kernel("plain", 60, 70),
      on_device("gpu_memcpy", "Memcpy DtoD", 140, 5),
  });
  REQUIRE(rank.kernels.size() == 2);
  CHECK(rank.kernels[0].name == "plain");
  CHECK(rank.kernels[0].blocks == -1);
  CHECK(rank.kernels[0].occupancy == -1);
  CHECK(rank.kernels[1].calls == 2);
  CHECK(rank.kernels[1].total_ns == 40000);
  CHECK(rank.kernels[1].blocks == 5);
  CHECK(rank.kernels[1].occupancy == 80);
}

TEST_CASE("tensor cores by the names of kernels", "[trace]") {
  for (const char* name :
       {"volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", "volta_h884gemm_256x64_ldg8_tn",
        "turing_fp16_s1688gemm_fp16_64x64", "turing_h1688gemm_128x128", "turing_int8_i8816cudnn_int8_128x128",
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8", "ampere_h16816gemm_64x64", "ampere_int8_i16832gemm_int8_256x128",
        "ampere_bf16_s16816gemm_bf16_64x64",
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_tensor16x8x8",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4>",
        "nvjet_hsh_128x256_64x4_1x2_h_bz",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "cutlass3x_sm100_tcgen05_gemm",
        "fmha_cutlassF_f16_aligned_64x64_rf_sm80", "void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>",
        "kernel_utcmma_128", "qgmma_e4m3"}) {
    CAPTURE(name);
    CHECK(uses_tensor_cores(name) == TensorCores::yes);
  }
  for (const char* name :
       {"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", "Memcpy HtoD",
        "void at::native::reduce_kernel<512, 1>", "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>",
        "void at::native::batch_norm_collect_statistics_kernel", "triton_poi_fused_add_0", "cunn_SoftMaxForward",
        "void at::native::multi_tensor_apply_kernel<>",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>",
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_simt_small_batch", "ampere_sgemm_128x64_tn",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "void at::native::max_pool_forward_nchw"}) {
    CAPTURE(name);
    CHECK(uses_tensor_cores(name) == TensorCores::no);
  }
  for (const char* name : {"my_kernel", "gemv2T_kernel_val", ""})
    CHECK(uses_tensor_cores(name) == TensorCores::unknown);
}

}  // namespace trainopt::trace
