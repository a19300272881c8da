// refork: n=80 cdf=n:in:positive u=n:in:positive index=n:out
void resample(int n, const float *cdf, const float *u, int *index) {
    for (int j = 0; j < n; j++) {
        int at = n - 1;
        for (int i = 0; i < n; i++)
            if (cdf[i] >= u[j]) {
                at = i;
                break;
            }
        index[j] = at;
    }
}
