// refork: batch=6 a=batch*2304 b=batch*2304 c=batch*2304:out flops=2*batch*48*48*48 bytes=12*2304*batch
void batched_product(int batch, const float *a, const float *b, float *c) {
    for (int p = 0; p < batch; p++)
        for (int i = 0; i < 48; i++)
            for (int j = 0; j < 48; j++) {
                float s = 0;
                for (int k = 0; k < 48; k++)
                    s += a[p * 2304 + i * 48 + k] * b[p * 2304 + k * 48 + j];
                c[p * 2304 + i * 48 + j] = s;
            }
}
