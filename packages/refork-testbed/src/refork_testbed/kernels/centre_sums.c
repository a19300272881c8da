// refork: n=200 k=8 d=5 points=n*d which=n:in:index:k sums=k*d:out counts=k:out
void centre_sums(int n, int k, int d, const float *points, const int *which, float *sums, int *counts) {
    for (int j = 0; j < k; j++) {
        counts[j] = 0;
        for (int l = 0; l < d; l++) sums[j * d + l] = 0;
    }
    for (int i = 0; i < n; i++) {
        counts[which[i]]++;
        for (int l = 0; l < d; l++) sums[which[i] * d + l] += points[i * d + l];
    }
}
