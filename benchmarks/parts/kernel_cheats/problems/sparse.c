// refork: n=2000 m=16000 from=n+1:in:offsets:m column=m:in:index:n value=m:in:uniform x=n y=n:out rtol=1e-3
void sparse(int n, int m, const int *from, const int *column, const float *value, const float *x, float *y) {
    (void)m;
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int k = from[i]; k < from[i + 1]; k++) sum += value[k] * x[column[k]];
        y[i] = sum;
    }
}
