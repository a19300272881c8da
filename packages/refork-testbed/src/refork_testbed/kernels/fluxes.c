// refork: n=60 density=n:in:positive mx=n energy=n:in:positive near=n*4:in:index:n flux=n*3:out
void fluxes(int n, const float *density, const float *mx, const float *energy, const int *near, float *flux) {
    for (int i = 0; i < n; i++) {
        float f0 = 0, f1 = 0, f2 = 0;
        float v = mx[i] / density[i], p = 0.4f * (energy[i] - 0.5f * density[i] * v * v);
        for (int j = 0; j < 4; j++) {
            int at = near[i * 4 + j];
            float w = mx[at] / density[at], q = 0.4f * (energy[at] - 0.5f * density[at] * w * w);
            f0 += 0.5f * (mx[i] + mx[at]);
            f1 += 0.5f * (mx[i] * v + p + mx[at] * w + q);
            f2 += 0.5f * ((energy[i] + p) * v + (energy[at] + q) * w);
        }
        flux[i * 3] = f0;
        flux[i * 3 + 1] = f1;
        flux[i * 3 + 2] = f2;
    }
}
