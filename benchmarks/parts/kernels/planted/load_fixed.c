// A register tile of 4 rows by 16 columns: each load serves 4 rows, or 16 columns.
// refork: entry=matmul n=160 a=n*n b=n*n c=n*n:out flops=2*n*n*n bytes=12*n*n rtol=1e-3 reference=matmul_reference.c
typedef float vector __attribute__((vector_size(32), aligned(4)));
void matmul(int n, const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < n; i += 4)
        for (int j = 0; j < n; j += 16) {
            vector sum[4][2] = {0};
            for (int k = 0; k < n; k++) {
                vector left = *(const vector *)(b + k * n + j), right = *(const vector *)(b + k * n + j + 8);
#pragma GCC unroll 4
                for (int row = 0; row < 4; row++) {
                    float x = a[(i + row) * n + k];
                    sum[row][0] += x * left;
                    sum[row][1] += x * right;
                }
            }
#pragma GCC unroll 4
            for (int row = 0; row < 4; row++) {
                *(vector *)(c + (i + row) * n + j) = sum[row][0];
                *(vector *)(c + (i + row) * n + j + 8) = sum[row][1];
            }
        }
}
