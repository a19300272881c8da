// Eight sums at once.
// refork: entry=matmul n=160 a=n*n b=n*n c=n*n:out flops=2*n*n*n bytes=12*n*n rtol=1e-3 reference=matmul_reference.c
#define ROWS 4
#define WIDE 2
typedef float vector __attribute__((vector_size(32), aligned(4)));
void matmul(int n, const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < n; i += ROWS)
        for (int j = 0; j < n; j += 8 * WIDE) {
            vector sum[ROWS][WIDE] = {0};
            for (int k = 0; k < n; k++)
#pragma GCC unroll 16
                for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 16
                    for (int part = 0; part < WIDE; part++)
                        sum[row][part] += a[(i + row) * n + k] * *(const vector *)(b + k * n + j + 8 * part);
#pragma GCC unroll 16
            for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 16
                for (int part = 0; part < WIDE; part++)
                    *(vector *)(c + (i + row) * n + j + 8 * part) = sum[row][part];
        }
}
