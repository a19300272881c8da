// refork: n=200 k=8 d=6 points=n*d centres=k*d which=n:out
void nearest_centre(int n, int k, int d, const float *points, const float *centres, int *which) {
    int i, j, l;
    for (i = 0; i < n; i++) {
        float best = 3.0e38f;
        int index = 0;
        for (j = 0; j < k; j++) {
            float dist = 0;
            for (l = 0; l < d; l++)
                dist += (points[i * d + l] - centres[j * d + l]) * (points[i * d + l] - centres[j * d + l]);
            if (dist < best) {
                best = dist;
                index = j;
            }
        }
        which[i] = index;
    }
}
