void scan(int n, float *x) {
    float sum[64], before = 0;
    int part = (n + 63) / 64;
    for (int b = 0; b < 64; b++) {
        double s = 0;
        for (int i = b * part; i < n && i < (b + 1) * part; i++) s += x[i];
        sum[b] = (float)s;
    }
    for (int b = 0; b < 64; b++) {
        double s = before;
        for (int i = b * part; i < n && i < (b + 1) * part; i++) x[i] = (float)(s += x[i]);
        before += sum[b];
    }
}
