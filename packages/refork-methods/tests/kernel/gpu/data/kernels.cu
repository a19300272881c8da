// A transpose that writes columns, a tiled product without matrix instructions, and one that spills.
extern "C" __global__ void naive(const float *in, float *out, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    out[x * n + y] = in[y * n + x];
}
extern "C" __global__ void gemm_fp16(const float *a, const float *b, float *c, int n) {
    __shared__ float s[16][16], t[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k < n; k += 16) {
        s[y][x] = a[(blockIdx.y * 16 + y) * n + k + x];
        t[y][x] = b[(k + y) * n + blockIdx.x * 16 + x];
        __syncthreads();
#pragma unroll 2
        for (int i = 0; i < 16; i++) sum += s[y][i] * t[i][x];
        __syncthreads();
    }
    c[(blockIdx.y * 16 + y) * n + blockIdx.x * 16 + x] = sum;
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilled(const float4 *in, float4 *out, int n) {
    float4 v[9];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 9; k++) v[k] = in[i + k * n];
    for (int k = 0; k < 9; k++) v[k].x += v[8 - k].y * v[(k + 4) % 9].w;
    for (int k = 0; k < 9; k++) out[i + k * n] = v[k];
}
