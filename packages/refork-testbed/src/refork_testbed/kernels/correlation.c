// refork: n=50 m=20 data=n*m:inout mean=m:out dev=m:out corr=m*m:out
#include <math.h>
void correlation(int n, int m, double *data, double *mean, double *dev, double *corr) {
    for (int j = 0; j < m; j++) {
        mean[j] = 0.0;
        for (int i = 0; i < n; i++) mean[j] += data[i * m + j];
        mean[j] /= n;
    }
    for (int j = 0; j < m; j++) {
        dev[j] = 0.0;
        for (int i = 0; i < n; i++) dev[j] += (data[i * m + j] - mean[j]) * (data[i * m + j] - mean[j]);
        dev[j] = sqrt(dev[j] / n);
        dev[j] = dev[j] <= 0.1 ? 1.0 : dev[j];
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            data[i * m + j] -= mean[j];
            data[i * m + j] /= sqrt((double)n) * dev[j];
        }
    for (int i = 0; i < m; i++) {
        corr[i * m + i] = 1.0;
        for (int j = i + 1; j < m; j++) {
            corr[i * m + j] = 0.0;
            for (int k = 0; k < n; k++) corr[i * m + j] += data[k * m + i] * data[k * m + j];
            corr[j * m + i] = corr[i * m + j];
        }
    }
}
