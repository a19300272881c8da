void sparse(int n, int m, const int *restrict from, const int *restrict column, const float *restrict value, const float *restrict x, float *restrict y) {
    for (int i = 0; i < n; i++) {
        double sum = 0;
        if (from[i] + 16 < m) __builtin_prefetch(value + from[i] + 16);
        for (int k = from[i]; k < from[i + 1]; k++) sum += (double)value[k] * x[column[k]];
        y[i] = (float)sum;
    }
}
